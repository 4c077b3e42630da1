/* Stores seen from outside: a keeper with a store directory of its own, and what is in it. */
#ifndef CARREL_TESTS_STORE_SCENE_H
#define CARREL_TESTS_STORE_SCENE_H

#include "support.h"

#define MB (UINT64_C(1) << 20)

extern char scene_dir[64];      /* of the stores */

/* A keeper that listens, connected. flavour: "root"; "rootless": as an ordinary user; "none": without a store
 * directory. */
void     scene_start(const char *flavour);
/* Asked to end, or killed with -9; reaped. */
void     scene_stop(void);
void     scene_kill(void);

/* The group's; each test begins with an empty directory and must leave one. */
int      scene_make(void **state);
int      scene_remove(void **state);
int      scene_test_begin(void **state);
int      scene_test_end(void **state);

/* A box on a store; must work. */
void     store_make(uint32_t box, uint64_t store, uint64_t bytes);
/* What comes of it. */
struct told store_try(uint32_t box, uint64_t store, uint64_t bytes);
int      store_forget(uint64_t store);          /* REQUEST_STORE_REMOVE: its result */

/* Runs sh -c in the box, which must end with 0; its output. */
const char *say(uint32_t box, const char *script);

uint64_t store_size(uint64_t store);            /* of the file; 0: there is none */
uint64_t store_taken(uint64_t store);           /* of the host's disk */
int      loops_in_use(void);                    /* loop devices whose file is in our directory */
int      names_in_dir(void);
bool     store_needs_replay(uint64_t store);    /* it was not unmounted */
bool     store_is_clean(uint64_t store);        /* says e2fsck, after a whole check */

#endif
