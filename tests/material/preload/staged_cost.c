/* What a call costs on each of the given paths, side by side: the median of many, in nanoseconds. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 20000 };

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    long one = *(const long *)a, other = *(const long *)b;
    return (one > other) - (one < other);
}

static long median(long *times)
{
    qsort(times, CALLS, sizeof *times, compare);
    return times[CALLS / 2];
}

int main(int count, char **words)
{
    static long opening[CALLS], looking[CALLS], telling[CALLS];
    for (int word = 1; word < count; word++) {
        for (int call = 0; call < CALLS; call++) {
            struct stat found;
            long before = now();
            int fd = open(words[word], O_RDONLY);
            long between = now();
            int failed = stat(words[word], &found);
            long after = now();
            failed = failed || fstat(fd, &found);
            long end = now();
            if (fd < 0 || failed) {
                perror(words[word]);
                return 1;
            }
            close(fd);
            opening[call] = between - before;
            looking[call] = after - between;
            telling[call] = end - after;
        }
        printf("%ld %ld %ld\n", median(opening), median(looking), median(telling));
    }
    return 0;
}
