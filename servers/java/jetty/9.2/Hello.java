// The servlet of ../Hello.java for Jetty 9.2, which has older packages and an older constructor.

import java.io.IOException;
import java.net.InetSocketAddress;
import javax.servlet.http.HttpServlet;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

public class Hello extends HttpServlet {
    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
            throws IOException {
        response.setContentType("text/plain;charset=utf-8");
        // Without a length, only closing ends a response to "Connection: close" in Jetty 9.2.
        response.setContentLength(13);
        response.getWriter().print("Hello, World!");
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("--version")) {
            System.out.println("Jetty " + Server.getVersion() + ", "
                    + System.getProperty("java.vm.name") + " " + Runtime.version());
            return;
        }
        int port = Integer.parseInt(System.getenv("PORT"));
        Server server = new Server(new InetSocketAddress(System.getenv("HOST"), port));
        server.setStopAtShutdown(true);
        ServletContextHandler context = new ServletContextHandler(server, "/");
        context.addServlet(new ServletHolder(new Hello()), "");
        server.start();
        server.join();
    }
}
