/* The commands that talk to a server; each returns its exit status. */
#ifndef CARREL_CLIENT_COMMANDS_H
#define CARREL_CLIENT_COMMANDS_H

int client_run(int argc, char **argv);
int client_create(int argc, char **argv);
int client_ps(int argc, char **argv);
int client_exec(int argc, char **argv);
int client_shell(int argc, char **argv);
int client_cp(int argc, char **argv);
int client_logs(int argc, char **argv);
int client_jobs(int argc, char **argv);
int client_wait(int argc, char **argv);
int client_kill(int argc, char **argv);
int client_events(int argc, char **argv);
int client_forward(int argc, char **argv);
int client_pause(int argc, char **argv);
int client_resume(int argc, char **argv);
int client_stop(int argc, char **argv);
int client_start(int argc, char **argv);
int client_rm(int argc, char **argv);
int client_stats(int argc, char **argv);
int client_net(int argc, char **argv);
int client_service(int argc, char **argv);
int client_grant(int argc, char **argv);
int client_token(int argc, char **argv);
int client_secret(int argc, char **argv);
int client_layer(int argc, char **argv);
int client_df(int argc, char **argv);
int client_volume(int argc, char **argv);
int client_py(int argc, char **argv);
int client_repl(int argc, char **argv);
int client_kernel(int argc, char **argv);
int client_kernelspec(int argc, char **argv);
int client_mcp(int argc, char **argv);

#endif
