/*
 * Object classes: over how many targets an object is striped. A class is its redundancy in the
 * upper 8 bits (1: none) and its number of stripes in the lower 24.
 */
#ifndef AZEKURA_DAOS_OBJ_CLASS_H
#define AZEKURA_DAOS_OBJ_CLASS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t daos_oclass_id_t;

/* Room for the name of a class, with its zero byte. */
#define MAX_OBJ_CLASS_NAME_LEN 24

enum {
	/* No class; where one is asked for: that of the directory. */
	OC_UNKNOWN = 0,
	OC_S1 = (1 << 24) | 1,
	OC_S2 = (1 << 24) | 2,
	OC_S4 = (1 << 24) | 4,
	OC_S8 = (1 << 24) | 8,
	OC_S16 = (1 << 24) | 16,
	OC_S32 = (1 << 24) | 32,
	/* All targets. */
	OC_SX = (1 << 24) | 0xffff,
};

/* The class of this name (S1, S2, S4, S8, S16, S32, SX); OC_UNKNOWN for any other text. */
daos_oclass_id_t daos_oclass_name2id(const char *name);

/* Writes the name of a class into `name` (MAX_OBJ_CLASS_NAME_LEN bytes). 0, or -1 if there is none. */
int daos_oclass_id2name(daos_oclass_id_t oc_id, char *name);

#ifdef __cplusplus
}
#endif

#endif
