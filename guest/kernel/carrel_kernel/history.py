"""IPython's history in memory: no database, no thread, nothing that outlives the kernel."""

import fnmatch

from IPython.core.history import HistoryManager


class MemoryHistory(HistoryManager):
    def _entries(self, raw, output):
        return list(self._get_range_session(1, None, raw, output))

    def get_tail(self, n=10, raw=True, output=False, include_latest=False):
        entries = self._entries(raw, output)
        if not include_latest:
            del entries[-1:]
        n = 10 if n is None else n
        return entries[-n:] if n > 0 else []

    def search(self, pattern="*", raw=True, search_raw=True, output=False, n=None, unique=False):
        sources = self.input_hist_raw if search_raw else self.input_hist_parsed
        found = {}
        for entry in self._entries(raw, output):
            source = sources[entry[1]]
            if fnmatch.fnmatchcase(source, pattern or "*"):
                key = source if unique else entry[1]
                found.pop(key, None)
                found[key] = entry
        entries = list(found.values())
        if n is None:
            return entries
        return entries[-n:] if n > 0 else []

    def get_range(self, session=0, start=1, stop=None, raw=True, output=False):
        if session not in (0, self.session_number):
            return iter(())
        return self._get_range_session(start, stop, raw, output)

    def get_session_info(self, session=0):
        return (0, None, None, len(self.input_hist_raw) - 1, "")

    def end_session(self):
        pass

    def writeout_cache(self, conn=None):
        pass
