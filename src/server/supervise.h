/* `carrel serve`: opens the listeners and keeps a keeper and a front running. */
#ifndef CARREL_SERVER_SUPERVISE_H
#define CARREL_SERVER_SUPERVISE_H

int serve_main(int argc, char **argv);
/* `carrel config check [FILE]`, `carrel config show`. */
int config_main(int argc, char **argv);

#endif
