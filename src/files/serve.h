/* The file helper: serves one conversation about a box's files on a socket, under the box's own rights. proto/files.h
 * has the protocol. */
#ifndef CARREL_FILES_SERVE_H
#define CARREL_FILES_SERVE_H

/* Returns when the other side closes or breaks the protocol. */
void files_serve(int socket);

/* Like files_serve() with one descriptor per direction and with `root` instead of "/" as the top of all paths: nothing
 * outside of it is reached. Fds are borrowed. */
void files_converse(int in, int out, int root);

#endif
