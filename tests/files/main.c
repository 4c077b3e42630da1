/* The file helper on a folder of its own, with sanitizers; what the box's seal adds is tested in tests/engine. */
#include "scene.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    int failed = 0;

    alarm(560);     /* nothing here may hang */
    signal(SIGPIPE, SIG_IGN);
    failed += _cmocka_run_group_tests("basic", basic_tests, n_basic_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("tree", tree_tests, n_tree_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("tar", tar_tests, n_tar_tests, NULL, NULL);
    return failed != 0;
}
