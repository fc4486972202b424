/*
 * Which pool and container a path means.
 */
#ifndef AZEKURA_DAOS_UNS_H
#define AZEKURA_DAOS_UNS_H

#include <daos_cont.h>
#include <daos_obj_class.h>
#include <daos_prop.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In da_flags. */
enum {
	/* The path is /POOL/CONTAINER/... without "daos:" before it. */
	DUNS_NO_PREFIX = 1 << 0,
	DUNS_NO_REVERSE_LOOKUP = 1 << 1,
	DUNS_NO_CHECK_PATH = 1 << 2,
};

struct duns_attr_t {
	/* Out: DAOS_PROP_CO_LAYOUT_POSIX. */
	daos_cont_layout_t da_type;
	daos_oclass_id_t da_oclass_id;
	daos_size_t da_chunk_size;
	daos_prop_t *da_props;
	/* In. */
	uint32_t da_flags;
	/* Out: the pool, for daos_pool_connect(), and the container, for daos_cont_open(); no container
	 * if the path ends before it. */
	char da_pool[DAOS_PROP_LABEL_MAX_LEN + 1];
	char da_cont[DAOS_PROP_LABEL_MAX_LEN + 1];
	/* Out: NULL. */
	char *da_sys;
	/* Out: the rest of the path with its slash, memory of malloc(); NULL if there is none. */
	char *da_rel_path;
	bool da_on_lustre;
	bool da_no_prefix;
	uuid_t da_puuid;
	uuid_t da_cuuid;
	daos_oclass_id_t da_dir_oclass_id;
	daos_oclass_id_t da_file_oclass_id;
};

/*
 * Takes "daos://POOL/CONTAINER/PATH" apart ("daos:/" with one slash or none is fine too). A path of any
 * other form is none of a container: ENODATA. EINVAL for "daos:" without a pool or with names that are
 * too long, ENOMEM.
 */
int duns_resolve_path(const char *path, struct duns_attr_t *attr);
/* Frees da_rel_path and da_sys. */
void duns_destroy_attr(struct duns_attr_t *attr);

#ifdef __cplusplus
}
#endif

#endif
