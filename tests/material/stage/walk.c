/* Walks through a tree with nothing but the C library, to be linked statically: prints what each name is,
 * and a sum over each file's bytes, read in one of three ways by turns. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned long add(unsigned long sum, const unsigned char *bytes, size_t count) {
    for (size_t at = 0; at < count; at++) sum = sum * 31 + bytes[at];
    return sum;
}

static unsigned long by_stream(const char *path) {
    unsigned char bytes[777];
    unsigned long sum = 0;
    FILE *file = fopen(path, "r");
    if (!file) return 1;
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, file)) > 0;) sum = add(sum, bytes, got);
    fclose(file);
    return sum;
}

static unsigned long by_descriptor(const char *path) {
    unsigned char bytes[4096];
    unsigned long sum = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 2;
    for (off_t at = 0, got; (got = pread(file, bytes, sizeof bytes, at)) > 0; at += got) {
        sum = add(sum, bytes, got);
    }
    close(file);
    return sum;
}

static unsigned long by_mapping(const char *path, off_t length) {
    int file = open(path, O_RDONLY);
    if (file < 0) return 3;
    if (length == 0) return close(file) ? 4 : 0;
    unsigned char *bytes = mmap(NULL, length, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (bytes == MAP_FAILED) return 5;
    unsigned long sum = add(0, bytes, length);
    munmap(bytes, length);
    return sum;
}

static int by_bytes(const struct dirent **one, const struct dirent **other) {
    return strcmp((*one)->d_name, (*other)->d_name);
}

static int walk(const char *dir) {
    struct dirent **names;
    int count = scandir(dir, &names, NULL, by_bytes), failed = count < 0;
    if (failed) printf("%s: %s\n", dir, strerror(errno));
    for (int index = 0; index < count; index++) {
        static int turn;
        struct stat found, led;
        char path[PATH_MAX], text[PATH_MAX] = "";
        const char *name = names[index]->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
        if (snprintf(path, sizeof path, "%s/%s", dir, name) >= PATH_MAX) return 1;
        if (lstat(path, &found)) {
            printf("%s: %s\n", path, strerror(errno));
            continue;
        }
        if (S_ISLNK(found.st_mode)) {
            ssize_t length = readlink(path, text, sizeof text - 1);
            int lost = stat(path, &led);
            printf("%s -> %.*s: %s\n", path, (int)length, text,
                   lost ? strerror(errno) : S_ISDIR(led.st_mode) ? "a directory" : "a file");
        } else if (S_ISDIR(found.st_mode)) {
            printf("%s/ %o\n", path, found.st_mode & 07777);
            failed |= walk(path);
        } else if (S_ISREG(found.st_mode)) {
            unsigned long sum = turn % 3 == 0   ? by_stream(path)
                                : turn % 3 == 1 ? by_descriptor(path)
                                                : by_mapping(path, found.st_size);
            turn++;
            printf("%s %o %ld %ld %lx %d\n", path, found.st_mode & 07777, (long)found.st_size,
                   (long)found.st_mtime, sum, access(path, X_OK));
        } else {
            printf("%s: type %o\n", path, found.st_mode & S_IFMT);
        }
        free(names[index]);
    }
    if (count >= 0) free(names);
    return failed;
}

int main(int argc, char **argv) {
    if (argc < 2 || chdir(argv[1])) return 9;
    return walk(argc > 2 ? argv[2] : ".");
}
