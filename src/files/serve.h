/* The file helper: serves one conversation about a box's files on a socket, under the box's own rights.
 * See proto/files.h for what it understands. */
#ifndef CARREL_FILES_SERVE_H
#define CARREL_FILES_SERVE_H

/* Returns when the other side is done or talks nonsense. */
void files_serve(int socket);

/* The same with both directions apart, and `root` instead of "/" as the top of all paths: nothing outside of it is
 * reached. Fds are borrowed. */
void files_converse(int in, int out, int root);

#endif
