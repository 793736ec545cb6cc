package audit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/record/audit"
)

func lines(texts ...string) (records []audit.Record) {
	for _, text := range texts {
		records = append(records, audit.Record{Line: []byte(text + "\n")})
	}
	return records
}

// Nobody reads a pipe for a while. What is sent meanwhile fails in time, and is written once when somebody reads.
func TestAPipeThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		sink := audit.NewLines("stdout", writer)
		send := func(texts ...string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return sink.Send(ctx, lines(texts...))
		}
		for range 3 {
			if err := send("a", "b"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if err := send("c"); !errors.Is(err, context.DeadlineExceeded) { // of the other log
			t.Fatal(err)
		}
		var got bytes.Buffer
		read := make(chan error)
		go func() {
			_, err := io.Copy(&got, reader)
			read <- err
		}()
		synctest.Wait()
		for _, texts := range [][]string{{"c"}, {"a", "b"}, {"d"}, {"a", "b"}} {
			if err := send(texts...); err != nil {
				t.Fatal(err)
			}
		}
		writer.Close()
		if err := <-read; err != nil || got.String() != "a\nb\nc\nd\na\nb\n" {
			t.Errorf("%v, got %q", err, got.String())
		}
	})
}

// tearing takes a number of bytes, and then fails once.
type tearing struct {
	bytes.Buffer
	left int
}

func (w *tearing) Write(b []byte) (int, error) {
	if w.left < len(b) {
		n, _ := w.Buffer.Write(b[:w.left])
		w.left = 1 << 20
		return n, errors.New("no space left on device")
	}
	w.left -= len(b)
	return w.Buffer.Write(b)
}

// A write that has ended within a line does not spoil the next line.
func TestALineThatIsCutOffEnds(t *testing.T) {
	for cut, want := range map[int]string{0: "aa\nbb\n", 1: "a\naa\nbb\n", 3: "aa\naa\nbb\n", 4: "aa\nb\naa\nbb\n"} {
		w := &tearing{left: cut}
		sink := audit.NewLines("stdout", w)
		if err := sink.Send(t.Context(), lines("aa", "bb")); err == nil {
			t.Error("the write has not failed")
		}
		if err := sink.Send(t.Context(), lines("aa", "bb")); err != nil || w.String() != want {
			t.Errorf("cut after %d: %v, got %q, want %q", cut, err, w.String(), want)
		}
	}
}

// The lines of two logs are both written late. None is written again.
func TestLateLinesOfTwoLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		sink := audit.NewLines("stdout", writer)
		var got []byte
		for _, text := range []string{"a", "b"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := sink.Send(ctx, lines(text)); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			late := make([]byte, 2)
			if _, err := io.ReadFull(reader, late); err != nil {
				t.Fatal(err)
			}
			got = append(got, late...)
			synctest.Wait()
		}
		read := make(chan []byte)
		go func() {
			rest, _ := io.ReadAll(reader)
			read <- rest
		}()
		for _, text := range []string{"a", "b", "c"} {
			if err := sink.Send(t.Context(), lines(text)); err != nil {
				t.Fatal(err)
			}
		}
		writer.Close()
		if got = append(got, <-read...); string(got) != "a\nb\nc\n" {
			t.Errorf("got %q", got)
		}
	})
}
