package capd

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"strconv"
	"time"
)

const (
	// DefaultWait is how long a client waits for a sidecar that cannot be reached.
	DefaultWait = 30 * time.Second
	// grace is what the sidecar has on top of a call's timeout to say itself that it is over.
	grace      = 4 * time.Second
	firstPause = 50 * time.Millisecond
	pauseMax   = 2 * time.Second
)

// backoff gives growing pauses, each shortened at random by up to a half.
type backoff struct{ next time.Duration }

func (b *backoff) pause() time.Duration {
	if b.next == 0 {
		b.next = firstPause
	}
	pause := b.next/2 + time.Duration(rand.Int63n(int64(b.next/2)+1))
	b.next = min(b.next*2, pauseMax)
	return pause
}

func (b *backoff) reset() { b.next = 0 }

// patience decides whether a request is sent again, and when: until its timeout, or until its sidecar could not be reached
// for too long.
type patience struct {
	timeout, wait time.Duration
	over          time.Time // zero without a timeout
	deadline      time.Time // when the answer must be there; zero without a timeout
	troubleSince  time.Time
	backoff       backoff
	wasSent       bool
}

func newPatience(timeout, wait time.Duration) *patience {
	p := &patience{timeout: timeout, wait: wait}
	if timeout > 0 {
		p.over = time.Now().Add(timeout)
		p.deadline = p.over.Add(grace)
	}
	return p
}

// progressed: the sidecar has answered, so what comes later is new trouble.
func (p *patience) progressed() {
	p.troubleSince = time.Time{}
	p.backoff.reset()
}

// afterFailure waits for the next attempt. The error is what the user gets when there is none.
func (p *patience) afterFailure(ctx context.Context, err error, wasWritten bool) error {
	p.wasSent = p.wasSent || wasWritten
	var failed *failure
	if !errors.As(err, &failed) {
		return p.interrupted(ctx, err)
	}
	pause := p.backoff.pause()
	if failed.kind == late || !p.hasTimeFor(pause) {
		return p.givenUp(failed)
	}
	return p.sleep(ctx, pause)
}

// afterRefusal waits as long as the sidecar asks for. The error is the refusal where it is final.
func (p *patience) afterRefusal(ctx context.Context, header http.Header, refusal error) error {
	seconds, ok := retryAfter(header)
	refused, isRefused := refusal.(*Refused)
	if !ok || !isRefused || refused.Retry == "no" || !p.hasTimeFor(seconds) {
		return refusal
	}
	return p.sleep(ctx, seconds)
}

func (p *patience) sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return p.interrupted(ctx, ctx.Err())
	case <-timer.C:
		return nil
	}
}

// interrupted: the user's context ended. A deadline is the same as a timeout; a cancellation is the user's own.
func (p *patience) interrupted(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if p.wasSent {
		return &Pending{Problem{Code: 5003, Name: "TIMEOUT", Message: "no answer before the context's deadline", Retry: "yes", cause: err}}
	}
	return &Refused{Problem{Code: 2002, Name: "ENDPOINT_UNREACHABLE", Message: "the sidecar could not be reached before the context's deadline", Retry: "yes", cause: err}}
}

func (p *patience) hasTimeFor(pause time.Duration) bool {
	now := time.Now()
	if p.troubleSince.IsZero() {
		p.troubleSince = now
	}
	end := p.troubleSince.Add(p.wait)
	if !p.over.IsZero() {
		end = p.over
	}
	return now.Add(pause).Before(end)
}

func (p *patience) givenUp(failed *failure) error {
	if !p.wasSent {
		return &Refused{Problem{Code: 2002, Name: "ENDPOINT_UNREACHABLE", Message: failed.Error(), Retry: "yes", cause: failed.err}}
	}
	if failed.kind == late && p.timeout > 0 {
		return &Pending{Problem{Code: 5003, Name: "TIMEOUT", Message: fmt.Sprintf("no answer within %v", p.timeout), Retry: "yes", cause: failed.err}}
	}
	return &OutcomeUnknown{Problem{Code: 5902, Name: "INTERRUPTED", Message: "contact with the sidecar was lost after the request was sent: " + failed.Error(), Retry: "no", cause: failed.err}}
}

// retryAfter reads the seconds of Retry-After; the sidecar sends no dates.
func retryAfter(header http.Header) (time.Duration, bool) {
	seconds, err := strconv.ParseFloat(header.Get("Retry-After"), 64)
	if err != nil || !(seconds < 1e9) {
		return 0, false
	}
	return max(0, time.Duration(seconds*float64(time.Second))), true
}
