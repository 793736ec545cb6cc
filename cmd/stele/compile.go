package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

const (
	// compileWithin bounds how long a bundle may take to compile, and is less than a
	// request may take.
	compileWithin = 45 * time.Second
	// compileOutput bounds what comes of it.
	compileOutput = 32 << 20
	// compileMemory bounds the address space of a compilation.
	compileMemory = 4 << 30
)

// compilation is what a compiling process answers with.
type compilation struct {
	Form        []byte              `json:"form,omitempty"`
	Spec        activation.Spec     `json:"spec,omitzero"`
	Diagnostics schemas.Diagnostics `json:"diagnostics,omitempty"`
	Warnings    schemas.Diagnostics `json:"warnings,omitempty"`
}

// compileApart compiles in a process of its own: CUE is a language, and what a bundle
// makes of it, endless recursion for one, must not take the server with it.
func compileApart(ctx context.Context, source *policy.Source) (*policy.Compiled, schemas.Diagnostics, error) {
	var c compilation
	why, err := apart(ctx, compileWithin, "compile", activation.SpecOf(source), &c)
	switch {
	case err != nil:
		return nil, nil, err
	case why != "":
		return nil, schemas.Diagnostics{{Message: "the bundle could not be compiled: " + why,
			Hint: "see what it computes: it may recur without end, or be too large"}}, nil
	case len(c.Diagnostics) > 0:
		return nil, c.Diagnostics, nil
	}
	form, err := policy.DecodeForm(c.Form)
	if err != nil {
		return nil, nil, err
	}
	return &policy.Compiled{Form: form, Source: c.Spec.Source(), Warnings: c.Warnings}, nil, nil
}

// apart asks a process of this program, by the name of one of the hidden commands below `stele policy`, and
// decodes its answer. If none came, and that is the doing of what was asked, it says why. One is asked at a time.
func apart(ctx context.Context, within time.Duration, command string, question, answer any) (why string, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	input, err := json.Marshal(question)
	if err != nil {
		return "", err
	}
	select {
	case compiling <- struct{}{}:
		defer func() { <-compiling }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := exec.CommandContext(limited, program, "policy", command)
	cmd.Args[0] = "stele" // whatever the file is called
	cmd.Env = []string{"GOTRACEBACK=none"}
	output, said := &bounded{left: compileOutput}, &bounded{left: 64 << 10, drop: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), output, said
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case output.left < 0:
			return fmt.Sprintf("what comes of it is larger than %d MiB", compileOutput>>20), nil
		case limited.Err() != nil:
			return fmt.Sprintf("it did not end within %v", within), nil
		case !errors.As(err, &exit):
			return "", fmt.Errorf("%s: %w", command, err)
		}
		if line, _, _ := strings.Cut(strings.TrimSpace(said.text.String()), "\n"); line != "" {
			return line, nil
		}
		return err.Error(), nil
	}
	if err := json.Unmarshal(output.text.Bytes(), answer); err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return "", nil
}

// confine limits the process that apart has started, also if who started it is no more.
func confine(within time.Duration) {
	_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: compileMemory, Max: compileMemory}) // where there is such a limit
	time.AfterFunc(within+5*time.Second, func() { os.Exit(1) })
}

var compiling = make(chan struct{}, 1)

// bounded is a buffer that takes only so much: then it drops the rest, or fails.
type bounded struct {
	text bytes.Buffer // not embedded: io.Copy would find its ReadFrom
	left int
	drop bool
}

func (b *bounded) Write(p []byte) (int, error) {
	b.left -= len(p)
	switch {
	case b.left >= 0:
		return b.text.Write(p)
	case b.drop:
		return len(p), nil
	}
	return 0, errors.New("too much output")
}

// compileCommand is the other end of compileApart.
func compileCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "compile",
		Short:  "Compile the bundle on standard input, for a server",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			confine(compileWithin)
			var spec activation.Spec
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&spec); err != nil {
				return err
			}
			var c compilation
			compiled, diags := policy.Compile(spec.Source())
			if c.Diagnostics = diags; len(diags) == 0 {
				c.Form, _ = compiled.Form.Encode()
				c.Spec = activation.SpecOf(compiled.Source)
				c.Warnings = compiled.Warnings
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(c)
		},
	}
}
