// Pistache: a handler object and as many worker threads as there are cores.
#include <pistache/endpoint.h>
#include <pistache/version.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

using namespace Pistache;

class Hello : public Http::Handler {
public:
    HTTP_PROTOTYPE(Hello)

    void onRequest(const Http::Request& request, Http::ResponseWriter response) override {
        // Pistache 0.0.5 keeps a connection only when the client says `Keep-Alive`; in HTTP/1.1 that
        // is what saying nothing means (RFC 9112, section 9.3).
        auto said = request.headers().tryGet<Http::Header::Connection>();
        bool keep = said ? said->control() == Http::ConnectionControl::KeepAlive
                         : request.version() == Http::Version::Http11;
        response.headers().add<Http::Header::Connection>(
            keep ? Http::ConnectionControl::KeepAlive : Http::ConnectionControl::Close);
        const auto text = MIME(Text, Plain);
        if (request.resource() != "/")
            response.send(Http::Code::Not_Found, "Not Found", text);
        else if (request.method() == Http::Method::Get)
            response.send(Http::Code::Ok, "Hello, World!", text);
        else
            response.send(Http::Code::Method_Not_Allowed, "Method Not Allowed", text);
    }
};

int main(int count, char**) {
    if (count > 1) {
        std::cout << "pistache " << Pistache::Version::Major << "." << Pistache::Version::Minor << "." << Pistache::Version::Patch << ", gcc " << __VERSION__ << '\n';
        return 0;
    }
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

    Http::Endpoint server(Address("127.0.0.1", Port(std::stoi(port))));
    server.init(Http::Endpoint::options()
                    .threads(cpus ? std::stoi(cpus) : 1)
                    .flags(Tcp::Options::ReuseAddr | Tcp::Options::NoDelay));
    server.setHandler(Http::make_handler<Hello>());
    server.serveThreaded();
    int signal;
    sigwait(&term, &signal);
    server.shutdown();
}
