// A servlet at the root of a context, on Jetty's own embedded server.

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.http2.server.HTTP2CServerConnectionFactory;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

public class Hello extends HttpServlet {
    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
            throws IOException {
        response.setContentType("text/plain;charset=utf-8");
        response.getWriter().print("Hello, World!");
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("--version")) {
            System.out.println("Jetty " + Server.getVersion() + ", "
                    + System.getProperty("java.vm.name") + " " + Runtime.version());
            return;
        }
        Server server = new Server();
        HttpConfiguration configuration = new HttpConfiguration();
        ServerConnector connector = new ServerConnector(server,
                new HttpConnectionFactory(configuration),
                new HTTP2CServerConnectionFactory(configuration));
        connector.setPort(Integer.parseInt(System.getenv("PORT")));
        server.addConnector(connector);
        server.setStopAtShutdown(true);
        ServletContextHandler context = new ServletContextHandler("/");
        // The empty pattern is the root and nothing below it: any other path is a 404.
        context.addServlet(Hello.class, "");
        server.setHandler(context);
        server.start();
        server.join();
    }
}
