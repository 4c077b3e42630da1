#define _GNU_SOURCE
#include "cli/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "cli/commands.h"
#include "proto/broker.h"
#include "proto/certificates.h"
#include "proto/egress.h"

enum { ANSWER_MS = 20000 };

/* Its environment is empty: the caller's may hold keys. */
static _Noreturn void become_broker(int link, const char *certificates, pid_t parent)
{
    char path[4200], fd[16], id[16];
    char *none[] = { NULL };
    char *words[] = { "carrel-broker", "--certificates", (char *)(uintptr_t)certificates, "--link-fd", fd,
                      "--uid", id, "--gid", id, NULL };

    snprintf(fd, sizeof fd, "%d", link);
    snprintf(id, sizeof id, "%d", BROKER_ID);
    if (geteuid() != 0)
        words[5] = NULL;
    /* Ctrl-C must only reach the command. */
    (void)setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent || fcntl(link, F_SETFD, 0) < 0)
        _exit(125);
    for (int i = 0; i < 2; i++)
        if (cli_program_path("carrel-broker", i, path, sizeof path))
            execve(path, words, none);
    _exit(127);
}

static int start(struct run_broker *broker, struct err *e)
{
    const char *certificates = certificates_find();
    int pair[2];

    if (!certificates)
        return err_set(e, ENOENT, STEP_HOST, "--key: this host has no file of CA certificates by which a server could "
                       "be checked; install ca-certificates");
    if (!cli_has_program("carrel-broker"))
        return err_set(e, ENOENT, STEP_NETWORK, "carrel-broker is not installed beside this program");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "broker");
    FD ours = pair[0], theirs = pair[1];
    pid_t self = getpid();
    broker->pid = fork();
    if (broker->pid < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "broker");
    if (broker->pid == 0) {
        ours = fd_close(ours);
        become_broker(theirs, certificates, self);
    }
    broker->link = TAKE_FD(ours);
    return 0;
}

/* Egress and broker get the ends of a link between them. */
static int introduce(const struct run_broker *broker, const struct run_egress *egress, struct err *e)
{
    struct egress_head to_egress = { .type = EGRESS_BROKER };
    struct broker_head to_broker = { .type = BROKER_EGRESS };
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "broker");
    FD one = pair[0], other = pair[1];
    ssize_t n = fdpass_send(egress->link, &to_egress, sizeof to_egress, &one, 1, 0);
    if (n > 0)
        n = fdpass_send(broker->link, &to_broker, sizeof to_broker, &other, 1, 0);
    return n < 0 ? err_at(e, (int)-n, STEP_NETWORK, 0, "egress or broker has ended") : 0;
}

static int send_names(const struct run_egress *egress, const struct run_options *o, struct err *e)
{
    static struct egress_brokered frame;

    frame = (struct egress_brokered){ .head = { .type = EGRESS_BROKERED, .box = RUN_EGRESS_BOX },
                                      .n = (uint32_t)o->n_keys };
    for (size_t i = 0; i < o->n_keys; i++)
        memcpy(frame.name[i], o->key[i]->key.host, sizeof frame.name[i]);
    ssize_t n = fdpass_send(egress->link, &frame, sizeof frame, NULL, 0, 0);
    return n < 0 ? err_at(e, (int)-n, STEP_NETWORK, 0, "egress has ended") : 0;
}

static int send_keys(const struct run_broker *broker, struct run_options *o, struct err *e)
{
    struct broker_box box = { .head = { .type = BROKER_BOX, .box = RUN_EGRESS_BOX }, .wants_files = 1 };
    ssize_t n = 0;

    for (size_t i = 0; i < o->n_keys && n >= 0; i++) {
        struct broker_key *key = &o->key[i]->key;
        key->head.box = RUN_EGRESS_BOX;
        n = fdpass_send(broker->link, key, sizeof *key, NULL, 0, 0);
        explicit_bzero(key->value, sizeof key->value);
    }
    if (n >= 0 && getrandom(box.seed, sizeof box.seed, 0) != sizeof box.seed)
        n = -EIO;
    if (n >= 0)
        n = fdpass_send(broker->link, &box, sizeof box, NULL, 0, 0);
    explicit_bzero(&box, sizeof box);
    return n < 0 ? err_at(e, (int)-n, STEP_NETWORK, 0, "the broker has ended") : 0;
}

static int map_file(int fd, void **ret, size_t *ret_size)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return -errno;
    void *at = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    *ret = at;
    *ret_size = (size_t)status.st_size;
    return 0;
}

static int take_answer(struct run_broker *broker, struct err *e)
{
    struct pollfd wait = { .fd = broker->link, .events = POLLIN };
    struct broker_failed answer = { .head.type = 0 };
    struct fdpass passed = { .n = 0 };
    int fds[2] = { -1, -1 };

    if (poll(&wait, 1, ANSWER_MS) <= 0)
        return err_set(e, ETIMEDOUT, STEP_NETWORK, "the broker does not answer");
    ssize_t n = fdpass_receive(broker->link, &answer, sizeof answer, MSG_DONTWAIT, &passed);
    if (n <= 0)
        return err_set(e, ECHILD, STEP_NETWORK, "the broker has ended; it has said why");
    size_t n_fds = fdpass_take(&passed, fds, 2);
    FD pem = fds[0], java = fds[1];
    if (n == sizeof answer && answer.head.type == BROKER_FAILED)
        return err_set(e, EINVAL, STEP_NETWORK, "the broker: %.200s", answer.why);
    if (answer.head.type != BROKER_READY || n_fds != 2)
        return err_set(e, EPROTO, STEP_NETWORK, "the broker's answer");
    int r = map_file(pem, &broker->files[0], &broker->sizes[0]);
    if (r == 0)
        r = map_file(java, &broker->files[1], &broker->sizes[1]);
    return r < 0 ? err_at(e, -r, STEP_NETWORK, 0, "the box's certificates") : 0;
}

int run_broker_open(struct run_broker *broker, const struct run_egress *egress, struct run_options *options,
                    struct err *e)
{
    broker->link = -1;
    if (options->n_keys == 0)
        return 0;
    int r = start(broker, e);
    if (r == 0)
        r = introduce(broker, egress, e);
    if (r == 0)
        r = send_names(egress, options, e);
    if (r == 0)
        r = send_keys(broker, options, e);
    if (r == 0)
        r = take_answer(broker, e);
    if (r == 0)
        options->box.trust = (struct box_trust){ .pem = broker->files[0], .pem_size = broker->sizes[0],
                                                 .java = broker->files[1], .java_size = broker->sizes[1] };
    return r;
}

void run_broker_close(struct run_broker *broker)
{
    for (size_t i = 0; i < 2; i++)
        if (broker->files[i])
            (void)munmap(broker->files[i], broker->sizes[i]);
    if (broker->link < 0)
        return;
    broker->link = fd_close(broker->link);
    (void)kill(broker->pid, SIGKILL);
    while (waitpid(broker->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
