/*
 * Error numbers. daos_* and d_hash_* functions give them negative; dfs_* functions give positive
 * numbers of <errno.h> instead.
 */
#ifndef AZEKURA_DAOS_ERRNO_H
#define AZEKURA_DAOS_ERRNO_H

#ifdef __cplusplus
extern "C" {
#endif

enum daos_errno {
	DER_SUCCESS = 0,
	DER_NO_PERM = 1001,
	DER_NO_HDL = 1002,
	DER_INVAL = 1003,
	DER_EXIST = 1004,
	DER_NONEXIST = 1005,
	DER_UNREACH = 1006,
	DER_NOSPACE = 1007,
	DER_ALREADY = 1008,
	DER_NOMEM = 1009,
	DER_NOSYS = 1010,
	DER_TIMEDOUT = 1011,
	DER_BUSY = 1012,
	DER_AGAIN = 1013,
	DER_PROTO = 1014,
	DER_UNINIT = 1015,
	DER_TRUNC = 1016,
	DER_OVERFLOW = 1017,
	DER_CANCELED = 1018,
	DER_MISC = 1025,
	DER_BADPATH = 1026,
	DER_NOTDIR = 1027,
	DER_IO = 2001,
	DER_STALE = 2007,
	DER_KEY2BIG = 2012,
	DER_REC2BIG = 2013,
};

/* The name of an error, given negative or positive. Never NULL; not to be freed. */
const char *d_errstr(int rc);
/* What it means, in words. Likewise. */
const char *d_errdesc(int rc);

#ifdef __cplusplus
}
#endif

#endif
