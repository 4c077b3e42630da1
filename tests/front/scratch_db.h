/* A database in a directory of a test's own. */
#ifndef CARREL_TESTS_FRONT_SCRATCH_DB_H
#define CARREL_TESTS_FRONT_SCRATCH_DB_H

#include "front/db/db.h"
#include "front/scratch.h"

static struct db *db;
static struct err e;

static int open_db(void **state)
{
    if (scratch_make(state) < 0)
        return -1;
    return db_open(((struct scratch *)*state)->path, &db, &e);
}

static int close_db(void **state)
{
    db_close(db);
    db = NULL;
    return scratch_remove(state);
}

static void reopen(void **state)
{
    db_close(db);
    db = NULL;
    assert_int_equal(db_open(((struct scratch *)*state)->path, &db, &e), 0);
}

#endif
