/* Prints the names that package clients need, from the settings that boxes with network get. */
#include <stdio.h>
#include <string.h>

#include "box/plan.h"
#include "cli/commands.h"

static void print_hosts(const char *file, const char *text)
{
    const char *last = NULL;
    size_t last_size = 0;

    for (const char *at = text; at && (at = strstr(at, "://"));) {
        at += 3;
        size_t n = strcspn(at, "/ \t\r\n\"");
        if (!last || n != last_size || memcmp(at, last, n) != 0)
            printf("  /etc/%-24s %.*s\n", file, (int)n, at);
        last = at;
        last_size = n;
    }
}

void cli_print_indexes(void)
{
    static struct host_facts facts;
    bool is_any = false;

    facts_read_etc(&facts, true);
    for (size_t i = 0; i < facts.n_etc; i++)
        is_any |= facts.etc[i].for_network && facts.etc[i].text && strstr(facts.etc[i].text, "://");
    puts(is_any || facts.pip ? "\nwhere packages come from here; --allow these names, and those that a refusal names"
                             : "\nthis host names no package indexes: allow the names that a refusal names");
    print_hosts("pip.conf", facts.pip);
    for (size_t i = 0; i < facts.n_etc; i++)
        if (facts.etc[i].for_network)
            print_hosts(facts.etc[i].name, facts.etc[i].text);
    if (facts.index_secrets)
        printf("  %u addresses with a user name, a password or the like are left out; boxes do not have them\n",
               facts.index_secrets);
}
