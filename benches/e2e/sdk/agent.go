// The two ends of the comparison in Go, with the SDK as it is published.
//
// `agent provider SOCKET CAPABILITY SCHEMAS RESULT` serves; `agent caller SOCKET CAPABILITY PARAMS` does a round of calls for each
// line on its standard input. SCHEMAS, RESULT and PARAMS are JSON. What is said on the lines is in `src/role.rs` and
// `src/load.rs`.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"capd"
)

const callsMax = 1024

type load struct {
	InFlight int `json:"in_flight"`
	Ms       int `json:"ms"`
}

type round struct {
	Calls   int     `json:"calls"`
	All     int     `json:"all"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

func main() {
	role, socket, capability, given := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	if role == "provider" {
		provide(socket, capability, given[0], json.RawMessage(given[1]))
	} else {
		call(socket, capability, json.RawMessage(given[0]))
	}
}

func say(message any) {
	if err := json.NewEncoder(os.Stdout).Encode(message); err != nil {
		log.Fatal(err)
	}
}

func ready() { say(map[string]any{"pid": os.Getpid(), "address": ""}) }

func provide(socket, capability, schemas string, result json.RawMessage) {
	var sides [2]json.RawMessage
	if err := json.Unmarshal([]byte(schemas), &sides); err != nil {
		log.Fatal(err)
	}
	agent, err := capd.NewAgent(capd.Address(socket))
	if err != nil {
		log.Fatal(err)
	}
	agent.Concurrency = callsMax
	name, version, _ := strings.Cut(capability, ":")
	answer := func(context.Context, *capd.Invocation) (any, error) { return result, nil }
	served := capd.Raw(name, version, answer, capd.Idempotent(), capd.InputSchema(sides[0]), capd.OutputSchema(sides[1]))
	if err := agent.Add(served); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	// Callers wait until it is declared.
	ready()
	if err := agent.Serve(ctx); err != nil {
		log.Fatal(err)
	}
}

func call(socket, capability string, params json.RawMessage) {
	client, err := capd.NewClient(capd.Address(socket))
	if err != nil {
		log.Fatal(err)
	}
	one := func() error {
		answer, err := client.Call(context.Background(), capability, params)
		if err == nil && !bytes.HasPrefix(answer.Value, []byte(`{"days":`)) {
			err = fmt.Errorf("not what the provider gave: %s", answer.Value)
		}
		return err
	}
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := one()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			log.Fatal(err)
		}
	}
	ready()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var asked load
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		say(roundOf(one, asked))
	}
}

// roundOf has InFlight callers, each of which calls again once it has its answer.
func roundOf(one func() error, asked load) round {
	begins := time.Now().Add(time.Duration(asked.Ms) * time.Millisecond / 5)
	ends := begins.Add(time.Duration(asked.Ms) * time.Millisecond)
	last, all, times := ends, 0, []time.Duration{}
	var lock sync.Mutex
	// Whether there is to be another.
	add := func(made, ended time.Time) bool {
		lock.Lock()
		defer lock.Unlock()
		all++
		if ended.After(ends) && len(times) > 0 {
			return false
		}
		if ended.After(begins) {
			if ended.After(last) {
				last = ended
			}
			times = append(times, ended.Sub(made))
		}
		return true
	}
	var callers sync.WaitGroup
	for range asked.InFlight {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for {
				made := time.Now()
				if err := one(); err != nil {
					log.Fatal(err)
				}
				if !add(made, time.Now()) {
					return
				}
			}
		}()
	}
	callers.Wait()
	slices.Sort(times)
	at := func(quantile float64) float64 {
		return float64(times[min(len(times)-1, int(float64(len(times))*quantile))].Nanoseconds()) / 1e3
	}
	return round{Calls: len(times), All: all, Seconds: last.Sub(begins).Seconds(), P50: at(0.5), P99: at(0.99)}
}
