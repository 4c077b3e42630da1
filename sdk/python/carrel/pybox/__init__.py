"""The interface of the pppybox package, with kernels in isolated boxes. Change the import line, and code for pybox runs here."""
from .base import BasePyBox, BasePyBoxManager
from .kube import AsyncKubePyBoxManager, KubePyBoxManager
from .local import AsyncLocalPyBox, AsyncLocalPyBoxManager, LocalPyBox, LocalPyBoxManager
from .remote import AsyncRemotePyBox, AsyncRemotePyBoxManager, RemotePyBox, RemotePyBoxManager
from .schema import ErrorContent, PyBoxOut

__all__ = ["AsyncKubePyBoxManager", "AsyncLocalPyBox", "AsyncLocalPyBoxManager", "AsyncRemotePyBox", "AsyncRemotePyBoxManager", "BasePyBox",
           "BasePyBoxManager", "ErrorContent", "KubePyBoxManager", "LocalPyBox", "LocalPyBoxManager", "PyBoxOut", "RemotePyBox",
           "RemotePyBoxManager"]
