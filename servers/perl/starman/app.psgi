# A PSGI application.
use strict;
use warnings;

my @text = ('Content-Type' => 'text/plain');

sub page {
    my ($status, $body, @more) = @_;
    return [$status, [@text, 'Content-Length' => length $body, @more], [$body]];
}

sub {
    my $env = shift;
    return page(404, 'Not Found') if $env->{PATH_INFO} ne '/';
    return page(200, 'Hello, World!') if $env->{REQUEST_METHOD} eq 'GET';
    return [200, [@text, 'Content-Length' => 13], []] if $env->{REQUEST_METHOD} eq 'HEAD';
    return page(405, 'Method Not Allowed', Allow => 'GET, HEAD');
};
