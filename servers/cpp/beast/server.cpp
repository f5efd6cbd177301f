// Boost.Beast with asynchronous sessions. Each thread has its own event loop and listener.
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/version.hpp>
#include <sys/socket.h>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

class Session : public std::enable_shared_from_this<Session> {
    tcp::socket socket;
    boost::beast::flat_buffer buffer{16384};  // the limit for a head and what follows it
    std::optional<http::request_parser<http::string_body>> parser;
    http::response<http::string_body> response;

  public:
    explicit Session(tcp::socket&& accepted) : socket(std::move(accepted)) {}

    void read() {
        parser.emplace();
        parser->body_limit(8192);
        auto then = [self = shared_from_this()](error_code error, size_t) {
            if (!error) self->answer();
        };
        http::async_read(socket, buffer, *parser, then);
    }

  private:
    void answer() {
        const auto& request = parser->get();
        const auto path = request.target().substr(0, request.target().find('?'));
        const bool head = request.method() == http::verb::head;
        response = {};
        response.version(request.version());
        response.keep_alive(request.keep_alive());
        response.set(http::field::content_type, "text/plain");
        if (path != "/") {
            response.result(http::status::not_found);
            response.body() = "Not Found";
        } else if (head || request.method() == http::verb::get) {
            response.body() = "Hello, World!";
        } else {
            response.result(http::status::method_not_allowed);
            response.set(http::field::allow, "GET, HEAD");
            response.body() = "Method Not Allowed";
        }
        response.prepare_payload();
        if (head) response.body().clear();
        auto then = [self = shared_from_this()](error_code error, size_t) {
            if (!error && self->response.keep_alive())
                self->read();
            else
                self->socket.shutdown(tcp::socket::shutdown_send, error);
        };
        http::async_write(socket, response, then);
    }
};

void accept(tcp::acceptor& acceptor) {
    acceptor.async_accept([&](error_code error, tcp::socket socket) {
        if (!error) {
            socket.set_option(tcp::no_delay(true), error);
            std::make_shared<Session>(std::move(socket))->read();
        }
        accept(acceptor);
    });
}

void serve(tcp::endpoint address) {
    asio::io_context loop(1);
    tcp::acceptor acceptor(loop, address.protocol());
    acceptor.set_option(asio::socket_base::reuse_address(true));
    acceptor.set_option(asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>(true));
    acceptor.bind(address);
    acceptor.listen(1024);
    accept(acceptor);
    loop.run();
}

int main(int count, char**) {
    if (count > 1) {
        std::cout << BOOST_BEAST_VERSION_STRING << ", Boost " << BOOST_LIB_VERSION << '\n';
        return 0;
    }
    const char* cpus = std::getenv("CPUS");
    const char* host = std::getenv("HOST");
    const tcp::endpoint address(asio::ip::make_address(host ? host : "127.0.0.1"),
                                std::stoi(std::getenv("PORT")));
    for (int thread = cpus ? std::stoi(cpus) : 1; thread > 1; --thread)
        std::thread(serve, address).detach();
    serve(address);
}
