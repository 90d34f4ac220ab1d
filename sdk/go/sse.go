package capd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
)

// lineBytesMax bounds one line of an event stream.
const lineBytesMax = 64 << 20

// sse is one event as it came.
type sse struct {
	kind, id string
	data     []byte
}

// events reads a stream of server-sent events (WHATWG HTML, 9.2).
type events struct {
	reader *bufio.Reader
	close  func()
	once   sync.Once
	skipLF bool
}

func newEvents(body io.Reader, close func()) *events {
	return &events{reader: bufio.NewReader(body), close: close}
}

// end closes the connection of the stream. It may be called more than once.
func (e *events) end() { e.once.Do(e.close) }

// next gives the next event that has data. Comments are passed to alive.
//
// io.EOF: the stream has ended between events.
func (e *events) next(alive func()) (sse, error) {
	event := sse{kind: "message"}
	hasData := false
	for {
		line, err := e.line()
		if err != nil {
			return sse{}, err
		}
		if alive != nil {
			alive()
		}
		if len(line) == 0 {
			if hasData {
				event.data = bytes.TrimSuffix(event.data, []byte("\n"))
				return event, nil
			}
			event = sse{kind: "message"}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			event.kind = string(value)
		case "data":
			hasData = true
			event.data = append(append(event.data, value...), '\n')
		case "id":
			if !strings.ContainsRune(string(value), 0) {
				event.id = string(value)
			}
		}
	}
}

// line reads up to LF, CR or CRLF.
func (e *events) line() ([]byte, error) {
	var line []byte
	for {
		b, err := e.reader.ReadByte()
		if err != nil {
			return nil, err
		}
		if e.skipLF {
			e.skipLF = false
			if b == '\n' {
				continue
			}
		}
		if b == '\n' || b == '\r' {
			e.skipLF = b == '\r'
			return line, nil
		}
		if len(line) == lineBytesMax {
			return nil, errors.New("a line of the event stream is too long")
		}
		line = append(line, b)
	}
}
