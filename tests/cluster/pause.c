/* The process that holds a Pod's namespaces: it waits until it is asked to end, and reaps what is left to it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_term(int number)
{
    (void)number;
    _exit(0);
}

int main(void)
{
    struct sigaction end = {.sa_handler = on_term}, forget = {.sa_handler = SIG_IGN, .sa_flags = SA_NOCLDWAIT};
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGCHLD, &forget, NULL);
    for (;;)
        pause();
}
