/* The front as a program. */
#ifndef CARREL_SERVER_PROGRAM_H
#define CARREL_SERVER_PROGRAM_H

/* carrel-server front --keeper PATH --state DIR [--config FILE] [--set KEY=VALUE]... [--listen-fd N:tcp|unix]...
 *                     [--uid UID --gid GID] */
int front_main(int argc, char **argv);

#endif
