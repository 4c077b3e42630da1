/* Programs that every box has, and files of Python that those with network have (guest/box), as text. */
#ifndef CARREL_BOX_PROGRAMS_H
#define CARREL_BOX_PROGRAMS_H

extern const char programs_installer[], programs_sitecustomize[];

#endif
