/* Scenes are played once as they should go, which counts their frames, and then again for every frame and every fault.
 * Whatever happened, when all is quiet the front and the keeper must be of one mind, everybody who waited must have
 * been answered once, nothing is stuck, no descriptor is left, and a front that starts afterwards finds the same. */
#ifndef CARREL_TESTS_FRONT_PLAY_H
#define CARREL_TESTS_FRONT_PLAY_H

#include <stddef.h>

#include "front/fake_keeper.h"

struct scene {
    const char *name;
    int       (*play)(void);    /* 0 if it went as it should */
};

/* What else must be true when all is quiet; NULL: nothing. */
extern void (*check_more)(void);

/* What guests say overtakes what the keeper says. */
extern bool guests_hurry;

/* Gives the number of frames and messages. */
unsigned play(const struct scene *scene, enum fault_kind fault, unsigned at);
/* In every scene, instead of every frame or message that it can be instead of. */
void     strike_everywhere(const struct scene *scenes, size_t n, enum fault_kind fault);

/* A test that does so, in a file that has scenes[]. */
#define FAULT_TEST(name, fault)                             \
    static void name(void **state)                          \
    {                                                       \
        (void)state;                                        \
        strike_everywhere(scenes, COUNT(scenes), fault);    \
    }
/* The same with guests that hurry. */
#define HURRY_TEST(name, fault)                             \
    static void name(void **state)                          \
    {                                                       \
        (void)state;                                        \
        guests_hurry = true;                                \
        strike_everywhere(scenes, COUNT(scenes), fault);    \
        guests_hurry = false;                               \
    }

#endif
