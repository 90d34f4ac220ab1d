package capd

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// address is where a sidecar listens: a unix socket, or a port on loopback with a token.
type address struct {
	socket string // empty on TCP
	host   string // host:port on TCP
	token  string
}

func (a address) String() string {
	if a.socket != "" {
		return a.socket
	}
	return "http://" + a.host
}

// base is the URL that paths are appended to. The host of a unix socket is a name that the sidecar accepts.
func (a address) base() string {
	if a.socket != "" {
		return "http://localhost"
	}
	return "http://" + a.host
}

// findAddress takes the first of: given, CAPD_SOCKET, CAPD_HTTP, and the socket where capd puts it by itself.
func findAddress(given, token string) (address, error) {
	for _, variable := range []string{"CAPD_SOCKET", "CAPD_HTTP"} {
		if given == "" {
			given = os.Getenv(variable)
		}
	}
	if given == "" {
		path, err := defaultSocket()
		return address{socket: path}, err
	}
	if !strings.Contains(given, "://") {
		return address{socket: given}, nil
	}
	parts, err := url.Parse(given)
	if err != nil {
		return address{}, fmt.Errorf("capd: address %q: %w", given, err)
	}
	if parts.Scheme == "unix" {
		return address{socket: parts.Path}, nil
	}
	if parts.Scheme != "http" || parts.Port() == "" || strings.Trim(parts.Path, "/") != "" {
		return address{}, fmt.Errorf("capd: address %q: give the path of a socket, or http://127.0.0.1:PORT", given)
	}
	if !isLoopback(parts.Hostname()) {
		return address{}, fmt.Errorf("capd: address %q is not on this machine: an agent speaks to the sidecar beside it, on 127.0.0.1, ::1 or localhost", given)
	}
	if token == "" {
		if token, err = environmentToken(); err != nil {
			return address{}, err
		}
	}
	return address{host: parts.Host, token: token}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func environmentToken() (string, error) {
	if token := os.Getenv("CAPD_TOKEN"); token != "" {
		return token, nil
	}
	file := os.Getenv("CAPD_TOKEN_FILE")
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("capd: CAPD_TOKEN_FILE: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func defaultSocket() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("capd: no sidecar is named: set CAPD_SOCKET (%w)", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "capd", "capd.sock"), nil
}
