/* Forks in every way while other threads work in the container, begin and end. Arguments: a file of the
 * container, and how many children. */
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *path;
static atomic_int done;

static void *look(void *unused)
{
    struct stat found;
    while (!atomic_load(&done))
        if (stat(path, &found) != 0 && errno != EINTR)
            perror("stat"), exit(3);
    return unused;
}

static void *look_once(void *unused)
{
    struct stat found;
    stat(path, &found);
    return unused;
}

static void *begin_and_end(void *unused)
{
    while (!atomic_load(&done)) {
        pthread_t short_lived;
        if (pthread_create(&short_lived, NULL, look_once, NULL) == 0)
            pthread_join(short_lived, NULL);
    }
    return unused;
}

static pid_t start(int way)
{
    char *words[] = {"cat", (char *)path, NULL};
    pid_t child = -1;
    if (way == 0) {
        child = fork();
        if (child == 0)
            execv("/bin/cat", words), _exit(9);
    } else if (way == 1) {
        child = vfork();
        if (child == 0)
            execv("/bin/cat", words), _exit(9);
    } else if (way == 2) {
        if (posix_spawn(&child, "/bin/cat", NULL, NULL, words, environ) != 0)
            return -1;
    } else {
        child = fork();
        if (child == 0) {
            /* Goes on in the container without becoming another program, with a thread of its own. */
            struct stat found;
            pthread_t thread;
            int failed = stat(path, &found) != 0;
            failed |= pthread_create(&thread, NULL, look_once, NULL) != 0;
            _exit(failed || pthread_join(thread, NULL) != 0);
        }
    }
    return child;
}

int main(int count, char **words)
{
    pthread_t threads[5];
    int children = count > 2 ? atoi(words[2]) : 0;
    path = words[1];
    for (int i = 0; i < 5; i++)
        if (pthread_create(&threads[i], NULL, i < 4 ? look : begin_and_end, NULL) != 0)
            return 2;
    for (int i = 0; i < children; i++) {
        int status;
        pid_t child = start(i % 4);
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "child %d ended with %x\n", i, (unsigned)status);
            return 1;
        }
    }
    atomic_store(&done, 1);
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
