// Command speed measures whether a change made the server slower: it builds two revisions, runs the same requests on both in
// turns, and says which differences are larger than the noise.
//
//	speed [flags] BASE   compare the working tree with a revision, from the module's root
//	speed floor FOLDER ADDRESS   serve fixed answers of a folder; speed starts it itself
//
// `make speed` starts it. CONTRIBUTING.md says what it prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// leastRounds is how many rounds there must be: with fewer, no difference could be told from noise.
const leastRounds = 5

type options struct {
	base            string
	rounds, objects int
	watchers        int
	write           bool
	apiserver, etcd string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) == 3 && args[0] == "floor" {
		return serveFloor(ctx, args[1], args[2])
	}
	var o options
	f := flag.NewFlagSet("speed", flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", leastRounds, "how often each server is started and measured")
	f.IntVar(&o.objects, "objects", 10_000, "how many objects there are, and how many requests of each kind for one object")
	f.IntVar(&o.watchers, "watchers", 500, "how many watches there are")
	f.BoolVar(&o.write, "write", false, "write the tables into docs/PERFORMANCE.md; all must be committed")
	f.StringVar(&o.apiserver, "apiserver", "", "a program kube-apiserver, which is measured as well, with -etcd")
	f.StringVar(&o.etcd, "etcd", "", "the program etcd for it")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch o.base = f.Arg(0); {
	case f.NArg() != 1:
		return errors.New("usage: speed [flags] BASE")
	case o.rounds < leastRounds:
		return fmt.Errorf("%d rounds cannot tell a difference from noise: take at least %d", o.rounds, leastRounds)
	case o.objects < 1000 || o.objects > 999_999:
		return errors.New("the number of objects must be between 1,000 and 999,999")
	case o.watchers < 1:
		return errors.New("there must be a watcher")
	case (o.apiserver == "") != (o.etcd == ""):
		return errors.New("kube-apiserver needs etcd: give both programs, or neither")
	}
	return compare(ctx, o)
}

// compare measures all servers and prints the tables.
func compare(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "stele-speed")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	now, err := revisionOf("HEAD")
	if err != nil {
		return err
	}
	if changed, err := changedFiles(); err != nil {
		return err
	} else if changed && o.write {
		return errors.New("docs/PERFORMANCE.md is of one commit: commit the changes first")
	} else if changed {
		now += " with changes"
	}
	before, err := revisionOf(o.base)
	if err != nil {
		return err
	}
	expected := time.Duration(o.rounds*o.servers())*perServer(o) + 4*time.Minute
	say("this takes about %d minutes on two quiet cores: %d rounds of %d servers, after two builds", int(expected.Minutes())+1, o.rounds, o.servers())

	servers, clean, err := prepare(ctx, dir, o)
	defer clean()
	if err != nil {
		return err
	}
	instructions := perfWorks(ctx)
	if !instructions {
		say("perf stat counts no instructions on this machine: they are left out")
	}
	all := results{}
	var spent time.Duration
	measured, total := 0, o.rounds*len(servers)
	for round := range o.rounds {
		turn := slices.Clone(servers)
		if round%2 == 1 {
			slices.Reverse(turn)
		}
		for _, s := range turn {
			start := time.Now()
			found, err := measure(ctx, s, filepath.Join(dir, "data"), o, instructions)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", s.name, round+1, err)
			}
			all.add(s.name, found)
			took := time.Since(start)
			spent += took
			measured++
			left := spent / time.Duration(measured) * time.Duration(total-measured)
			say("round %d of %d: %s took %d s; about %d minutes are left", round+1, o.rounds, s.name, int(took.Seconds()), int(left.Minutes())+1)
		}
	}
	text := report(all, about{
		date: time.Now().UTC().Format("2006-01-02"), now: now, before: before, rounds: o.rounds, objects: o.objects, watchers: o.watchers,
		machine: machine(), peer: o.apiserver != "", instructions: instructions,
	})
	fmt.Print(text)
	if o.write {
		return writePage("docs/PERFORMANCE.md", text)
	}
	return nil
}

func (o options) servers() int {
	if o.apiserver != "" {
		return 4
	}
	return 3
}

// perServer is about how long the scenarios of one server take.
func perServer(o options) time.Duration {
	return time.Duration(float64(45*time.Second)*float64(o.objects)/10_000) + mixedFor + 15*time.Second
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// The markers between which writePage writes.
const (
	beginMark = "<!-- Written by make speed WRITE=1: begin -->"
	endMark   = "<!-- Written by make speed WRITE=1: end -->"
)

// writePage replaces what is between the markers of a page; a page without markers gets a section for them at its end.
func writePage(file, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), beginMark)
	if !found {
		return os.WriteFile(file, []byte(strings.TrimRight(before, "\n")+"\n\n## One run\n\n"+beginMark+"\n\n"+text+"\n"+endMark+"\n"), 0o644)
	}
	_, after, found := strings.Cut(rest, endMark)
	if !found {
		return fmt.Errorf("%s: %q is missing", file, endMark)
	}
	return os.WriteFile(file, []byte(before+beginMark+"\n\n"+text+"\n"+endMark+after), 0o644)
}
