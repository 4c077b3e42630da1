/* A helper that works on a folder of its own, in a child process. */
#ifndef CARREL_TESTS_FILES_SCENE_H
#define CARREL_TESTS_FILES_SCENE_H

#include "client.h"

#include <sys/stat.h>
#include <sys/types.h>

extern int         helper;          /* our end of its socket */
extern int         top;             /* its root, as a descriptor of ours */
extern const char *top_path;

int scene_setup(void **state);
int scene_teardown(void **state);

/* What the file holds, or NULL; freed by the caller. */
char *contents(const char *path, size_t *ret_size);
void  make_file(const char *path, const void *data, size_t size);
bool  exists(const char *path);
size_t count_names(const char *folder);

/* A tar that is built by hand. */
struct archive {
    char  *data;
    size_t size;
};
void archive_add(struct archive *a, char type, const char *name, const char *link, const void *data, size_t size);
void archive_add_records(struct archive *a, char type, const char *records);
void archive_end(struct archive *a);

extern const struct CMUnitTest basic_tests[], tree_tests[], tar_tests[];
extern const size_t n_basic_tests, n_tree_tests, n_tar_tests;

#endif
