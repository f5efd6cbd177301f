// libmicrohttpd with its own threads, each with its own epoll instance.
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>

static struct MHD_Response *hello, *missing, *refused;

static enum MHD_Result answer(void *unused, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *body,
                              size_t *size, void **seen) {
    (void)unused, (void)version, (void)body;
    // The first call comes after the head alone. A response to it would close the connection.
    if (*seen == NULL) {
        *seen = &hello;
        return MHD_YES;
    }
    if (*size != 0) {  // a part of the body, which is ignored
        *size = 0;
        return MHD_YES;
    }
    if (strcmp(url, "/") != 0)
        return MHD_queue_response(connection, MHD_HTTP_NOT_FOUND, missing);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return MHD_queue_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, refused);
    return MHD_queue_response(connection, MHD_HTTP_OK, hello);
}

static struct MHD_Response *page(const char *text) {
    struct MHD_Response *made =
        MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(made, "Content-Type", "text/plain");
    return made;
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "--version") == 0) {
        printf("libmicrohttpd %s, gcc %s\n", MHD_get_version(), __VERSION__);
        return 0;
    }
    const char *host = getenv("HOST"), *port = getenv("PORT"), *cpus = getenv("CPUS");
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port ? atoi(port) : 0),
                                  .sin_addr.s_addr = inet_addr(host ? host : "127.0.0.1")};
    hello = page("Hello, World!");
    missing = page("Not Found");
    refused = page("Method Not Allowed");
    MHD_add_response_header(refused, "Allow", "GET, HEAD");

    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    unsigned threads = cpus ? atoi(cpus) : 1;
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TURBO, 0, NULL, NULL, answer, NULL,
        MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_THREAD_POOL_SIZE, threads > 1 ? threads : 0,
        MHD_OPTION_CONNECTION_LIMIT, 4096, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1, MHD_OPTION_END);
    if (daemon == NULL) {
        fprintf(stderr, "cannot listen on port %s\n", port ? port : "(PORT is not set)");
        return 1;
    }
    int signal;
    sigwait(&term, &signal);
    MHD_stop_daemon(daemon);
    return 0;
}
