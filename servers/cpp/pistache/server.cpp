// Pistache: a handler object and as many worker threads as there are cores.
#include <pistache/endpoint.h>
#include <pistache/peer.h>
#include <pistache/version.h>

#include <sys/socket.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

using namespace Pistache;

class Hello : public Http::Handler {
public:
    HTTP_PROTOTYPE(Hello)

    void onRequest(const Http::Request& request, Http::ResponseWriter response) override {
        const int fd = response.peer()->fd();
        const auto text = MIME(Text, Plain);
        const auto method = request.method();
        using Http::Code;
        auto sent = request.resource() != "/" ? response.send(Code::Not_Found, "Not Found", text)
            : method == Http::Method::Get     ? response.send(Code::Ok, "Hello, World!", text)
            : method == Http::Method::Head    ? response.send(Code::Ok, "", text)
            : response.send(Code::Method_Not_Allowed, "Method Not Allowed", text);
        // Pistache 0.0.5 sends `Connection: Close` to a client that does not send `Keep-Alive`, but
        // leaves the connection open. A server must close a connection after this announcement.
        const auto said = request.headers().tryGet<Http::Header::Connection>();
        if (said && said->control() == Http::ConnectionControl::KeepAlive)
            return;
        sent.then([fd](ssize_t) { ::shutdown(fd, SHUT_WR); }, Async::NoExcept);
    }
};

int main(int count, char**) {
    if (count > 1) {
        std::cout << "pistache " << Pistache::Version::Major << "." << Pistache::Version::Minor << "." << Pistache::Version::Patch << ", gcc " << __VERSION__ << '\n';
        return 0;
    }
    const char* host = std::getenv("HOST");
    const char* port = std::getenv("PORT");
    const char* cpus = std::getenv("CPUS");
    if (!port) {
        std::cerr << "PORT is not set\n";
        return 1;
    }
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, nullptr);

    Http::Endpoint server(Address(host ? host : "127.0.0.1", Port(std::stoi(port))));
    server.init(Http::Endpoint::options()
                    .threads(cpus ? std::stoi(cpus) : 1)
                    .flags(Tcp::Options::ReuseAddr | Tcp::Options::NoDelay));
    server.setHandler(Http::make_handler<Hello>());
    server.serveThreaded();
    int signal;
    sigwait(&term, &signal);
    server.shutdown();
}
