/* The file helper: serves one conversation about a box's files on a socket, under the box's own rights. */
#ifndef CARREL_FILES_SERVE_H
#define CARREL_FILES_SERVE_H

/* Returns when the other side is done or talks nonsense. */
void files_serve(int socket);

#endif
