/* Texts about a box for people. */
#ifndef CARREL_FRONT_BOXES_BOX_TEXT_H
#define CARREL_FRONT_BOXES_BOX_TEXT_H

struct box;

/* "deleted 6 s ago: idle" for a dead box, else its phase. */
struct box_text { char text[64]; };
struct box_text box_show_phase(const struct box *b);
/* The same with its verb: "is paused", "was deleted 6 s ago: idle". */
struct box_text box_show_state(const struct box *b);

#endif
