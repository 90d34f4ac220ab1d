# What a hostile command tries; one word names the attempt, `true` or `false` says whether it succeeded.
use strict;
use warnings;
use Socket;
use POSIX qw(setsid _exit);

my ($attempt, @words) = @ARGV;
# A link that is closed is an attempt that failed.
$SIG{PIPE} = "IGNORE";

sub say_so { my ($it) = @_; print $it ? "true\n" : "false\n"; exit 0; }

# Opens a local link as far as the HANDSHAKE's answer, which names the agent.
sub handshake {
    my ($path) = @_;
    socket(my $s, PF_UNIX, SOCK_STREAM, 0) or return 0;
    connect($s, sockaddr_un($path)) or return 0;
    return greets($s);
}

sub greets {
    my ($s) = @_;
    my $request = "\xa2\x67version\x01\x6cmax_msg_size\x1a\x01\x00\x00\x00";
    syswrite($s, pack("N", 1 + length $request) . "\x02" . $request) or return 0;
    my $answer = "";
    while (sysread($s, my $more, 4096)) {
        $answer .= $more;
        return 1 if $answer =~ /did:key:/;
    }
    return 0;
}

# Runs the attempt in a process that has left its group, its session, and its parent.
sub as_daemon {
    my ($attempt) = @_;
    pipe(my $read, my $write) or die;
    my $first = fork() // die;
    if ($first == 0) {
        setsid();
        my $parent = $$;
        my $second = fork() // die;
        if ($second == 0) {
            select(undef, undef, undef, 0.01) while getppid() == $parent;
            syswrite($write, $attempt->() ? "1" : "0");
            _exit(0);
        }
        _exit(0);
    }
    waitpid($first, 0);
    close $write;
    sysread($read, my $answer, 1);
    return $answer eq "1";
}

my %attempts = (
    agent => sub { handshake($words[0]) },
    agent_as_child => sub {
        pipe(my $read, my $write) or die;
        my $child = fork() // die;
        if ($child == 0) { setsid(); syswrite($write, handshake($words[0]) ? "1" : "0"); _exit(0); }
        waitpid($child, 0);
        sysread($read, my $answer, 1);
        return $answer eq "1";
    },
    agent_as_daemon => sub { as_daemon(sub { handshake($words[0]) }) },
    # The process that connected is gone when its sidecar looks at it.
    agent_as_orphan => sub {
        pipe(my $read, my $write) or die;
        my $first = fork() // die;
        if ($first == 0) {
            socket(my $s, PF_UNIX, SOCK_STREAM, 0) or _exit(1);
            connect($s, sockaddr_un($words[0])) or _exit(1);
            my $second = fork() // die;
            if ($second == 0) { syswrite($write, greets($s) ? "1" : "0"); _exit(0); }
            _exit(0);
        }
        waitpid($first, 0);
        close $write;
        my $said = sysread($read, my $answer, 1);
        return $said && $answer eq "1";
    },
    # family and type, as numbers
    socket => sub { socket(my $s, $words[0], $words[1], 0) },
    socketpair => sub { socketpair(my $a, my $b, PF_UNIX, SOCK_STREAM, 0) },
    # a system call's number, and the error that it must not end with
    allowed => sub {
        my @zeros = (0) x 5;
        my $returned = syscall($words[0], @zeros);
        return $returned != -1 || $! + 0 != 1;
    },
    # how many processes can be started
    processes => sub {
        my @children;
        for (1 .. $words[0]) {
            my $child = fork();
            last unless defined $child;
            if ($child == 0) { sleep 60; _exit(0); }
            push @children, $child;
        }
        kill "KILL", @children;
        waitpid($_, 0) for @children;
        print scalar(@children), "\n";
        exit 0;
    },
);

say_so($attempts{$attempt}->());
