// Package compiling compiles bundles in child processes with limits, and has the hidden commands of these processes.
package compiling

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"stele.dev/stele/cmd/stele/internal/progress"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/limits/child"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/lint"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

const (
	// compileCPU limits the CPU time of a compilation. compileCPUPerMiB is added for each MiB of source.
	compileCPU       = time.Minute
	compileCPUPerMiB = time.Second
	// The wall time of a compilation is limited to compileWall times its CPU limit, plus compileStart, because the machine
	// may be busy.
	compileWall  = 4
	compileStart = 2 * time.Minute
	// Memory limits the memory of a compilation.
	Memory = 4 << 30
	// compileOutput limits the size of the compiled policy.
	compileOutput = 1 << 30
	// compileQueue limits how long a compilation waits until another one has ended.
	compileQueue = 30 * time.Second
)

// Options are the limits of compilations.
type Options struct {
	cpu    time.Duration
	memory resource.QuantityValue
}

func (o *Options) AddFlags(f *pflag.FlagSet) {
	o.memory.Quantity = *resource.NewQuantity(Memory, resource.BinarySI)
	usage.DurationVar(f, &o.cpu, "compile-cpu", 0, "limit of the CPU time to compile a bundle (default 1m, plus 1s for each MiB of its files)")
	f.Var(&o.memory, "compile-memory", "limit of the memory to compile a bundle")
}

// limits returns the limits for compiling a source.
func (o *Options) limits(source *bundles.Source) child.Limits {
	cpu := cmp.Or(o.cpu, compileCPU+compileCPUPerMiB*time.Duration(source.Size()>>20))
	return child.Limits{CPU: cpu, Wall: compileWall*cpu + compileStart, Memory: cmp.Or(o.memory.Value(), Memory), Output: compileOutput}
}

// told is a line of JSON of the child process before its answer: how many kinds of the bundle it has compiled.
type told struct {
	Kinds int `json:"kinds,omitempty"`
	Of    int `json:"of,omitempty"` // 0 in the answer
}

// A child process collects garbage of more than collectAt percent of what it holds while it compiles a source of more than largeSource:
// it takes more time then, and less memory.
const (
	largeSource = 4 << 20
	collectAt   = 50
)

// tellEvery is how often the child process tells that.
const tellEvery = 200 * time.Millisecond

// compilation is the answer of the child process as JSON. The bytes of the form follow it.
type compilation struct {
	told
	// Compiled lacks the form and the source.
	Compiled    *compile.Result     `json:"compiled,omitempty"`
	Used        []string            `json:"used,omitempty"` // paths of the files that the bundle consists of
	Size        int64               `json:"size,omitempty"` // of the form
	Diagnostics schemas.Diagnostics `json:"diagnostics,omitempty"`
	Findings    []lint.Finding      `json:"findings,omitempty"` // if the input asks for them
}

// Compile compiles a bundle in a child process. It returns diagnostics if the bundle has errors, and an error if the
// child process could not compile it.
func (o *Options) Compile(ctx context.Context, source *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
	compiled, _, diags, err := o.compile(ctx, source, false)
	return compiled, diags, err
}

// Lint compiles a bundle in a child process, and returns what the lints find in it.
func (o *Options) Lint(ctx context.Context, source *bundles.Source) (*compile.Result, []lint.Finding, schemas.Diagnostics, error) {
	return o.compile(ctx, source, true)
}

func (o *Options) compile(ctx context.Context, source *bundles.Source, lints bool) (*compile.Result, []lint.Finding, schemas.Diagnostics, error) {
	var form []byte
	c, diags, err := o.read(ctx, source, lints, func(r io.Reader, size int64) error {
		form = make([]byte, size)
		_, err := io.ReadFull(r, form)
		return err
	})
	if err != nil || len(diags) > 0 {
		return nil, nil, diags, err
	}
	if c.Compiled.Form, err = policy.DecodeForm(form); err != nil {
		return nil, nil, nil, err
	}
	c.Compiled.Source = source.Only(c.Used)
	return c.Compiled, c.Findings, nil, nil
}

// Folder compiles the bundle in a folder. It prints the errors of the bundle.
func (o *Options) Folder(ctx context.Context, cmd *cobra.Command, dir string) (*compile.Result, error) {
	source, err := bundles.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	compiled, diags, err := o.Compile(ctx, source)
	if err == nil && len(diags) > 0 {
		err = show.ErrDiagnostics(cmd.ErrOrStderr(), source, diags, dir)
	}
	return compiled, err
}

// Digest compiles a bundle in a child process and returns the digest of its policy. It does not load the policy into
// this process.
func (o *Options) Digest(ctx context.Context, source *bundles.Source) (d policies.Digest, diags schemas.Diagnostics, err error) {
	_, diags, err = o.read(ctx, source, false, func(r io.Reader, size int64) error {
		h := sha256.New()
		_, err := io.CopyN(h, r, size)
		d = policies.Digest(h.Sum(nil))
		return err
	})
	return d, diags, err
}

// read compiles a bundle in a child process, and calls form to read the form.
func (o *Options) read(ctx context.Context, source *bundles.Source, lints bool, form func(r io.Reader, size int64) error) (*compilation, schemas.Diagnostics, error) {
	var c compilation
	progress.Doing(ctx, "compiling the bundle: evaluating %s", show.Bytes(source.Size()))
	defer progress.Doing(ctx, "")
	err := run(ctx, o.limits(source), "compile", sourceHead{Lint: lints}, source, func(d *json.Decoder, rest io.Reader) error {
		for {
			c.told = told{}
			if err := d.Decode(&c); err != nil {
				return err
			}
			if c.Of == 0 {
				break
			}
			progress.Doing(ctx, "compiling the bundle: %d of %d kinds", c.Kinds, c.Of)
		}
		return form(rest, min(c.Size, compileOutput))
	})
	var failure *child.Failure
	switch {
	case errors.As(err, &failure):
		return nil, schemas.Diagnostics{{Message: "the bundle could not be compiled: " + failure.Why, Hint: compileHint(failure.Limit)}}, nil
	case err != nil:
		return nil, nil, err
	}
	return &c, c.Diagnostics, nil
}

// compileHint returns advice for a compilation that exceeded a limit.
func compileHint(l child.Limit) string {
	switch l {
	case child.CPU:
		return "look for a definition that contains itself, for comprehensions over long lists and for large disjunctions; --compile-cpu raises the limit"
	case child.Memory:
		return "look for a definition that contains itself, for comprehensions over long lists and for large disjunctions; --compile-memory raises the limit"
	case child.Stack:
		return "look for a definition that contains itself, and for expressions that nest thousands of levels deep"
	case child.Output:
		return "split the bundle into several control planes"
	}
	return ""
}

// sourceHead is the first line of the child's input, as JSON. The contents of the files follow it.
type sourceHead struct {
	Package    string            `json:"package"`
	Files      []sourceFile      `json:"files"`
	Strays     []string          `json:"strays,omitempty"`
	NearMisses []string          `json:"nearMisses,omitempty"`
	Configs    map[string]string `json:"configs,omitempty"` // for the command configs
	Lint       bool              `json:"lint,omitempty"`    // for the command compile
}

type sourceFile struct {
	Path string `json:"path"`
	Size int    `json:"size"`
}

// RunOnSource runs a hidden subcommand of `stele policy` as a child process with a source as its input, and calls read
// to read the answer. One child runs at a time.
func RunOnSource(ctx context.Context, l child.Limits, command string, configs map[string]string, source *bundles.Source, read func(*json.Decoder, io.Reader) error) error {
	return run(ctx, l, command, sourceHead{Configs: configs}, source, read)
}

func run(ctx context.Context, l child.Limits, command string, head sourceHead, source *bundles.Source, read func(*json.Decoder, io.Reader) error) error {
	patience := time.NewTimer(compileQueue)
	defer patience.Stop()
	select {
	case compiling <- struct{}{}:
		defer func() { <-compiling }()
	case <-patience.C:
		return &child.Starved{Why: "other bundles are being compiled"}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	head.Package, head.Strays, head.NearMisses = source.Package, source.Strays, source.NearMisses
	for _, f := range source.Files {
		head.Files = append(head.Files, sourceFile{f.Path, len(f.Data)})
	}
	return child.Run(ctx, l, []string{"policy", command}, func(w io.Writer) error {
		if err := json.NewEncoder(w).Encode(head); err != nil {
			return err
		}
		for _, f := range source.Files {
			if _, err := w.Write(f.Data); err != nil {
				return err
			}
		}
		return nil
	}, func(r io.Reader) error {
		d := json.NewDecoder(r)
		return read(d, afterLine(d, r))
	})
}

// compiling holds an element while a child of RunOnSource runs.
var compiling = make(chan struct{}, 1)

// afterLine returns a reader of the input after the line that a decoder has read.
func afterLine(d *json.Decoder, r io.Reader) io.Reader { return &lineRest{d: d, r: r} }

type lineRest struct {
	d    *json.Decoder
	r    io.Reader
	rest io.Reader // nil before the first read
}

func (l *lineRest) Read(p []byte) (int, error) {
	if l.rest == nil {
		l.rest = io.MultiReader(l.d.Buffered(), l.r)
		var newline [1]byte // that ends the line
		if _, err := io.ReadFull(l.rest, newline[:]); err != nil {
			return 0, err
		}
	}
	return l.rest.Read(p)
}

// ReadSource reads the input that RunOnSource writes.
func ReadSource(r io.Reader) (*bundles.Source, map[string]string, error) {
	source, head, err := readSource(r)
	return source, head.Configs, err
}

func readSource(r io.Reader) (*bundles.Source, sourceHead, error) {
	var head sourceHead
	if err := child.Confine(); err != nil {
		return nil, head, err
	}
	d := json.NewDecoder(r)
	if err := d.Decode(&head); err != nil {
		return nil, head, err
	}
	source := &bundles.Source{Package: head.Package, Strays: head.Strays, NearMisses: head.NearMisses}
	rest := afterLine(d, r)
	for _, f := range head.Files {
		data := make([]byte, f.Size)
		if _, err := io.ReadFull(rest, data); err != nil {
			return nil, head, err
		}
		source.Files = append(source.Files, bundles.File{Path: f.Path, Data: data})
	}
	return source, head, nil
}

// Command returns the hidden command that Options.read runs.
func Command() *cobra.Command {
	return ChildCommand("compile", "Compile the bundle on standard input, for stele itself", func(cmd *cobra.Command, _ []string) error {
		source, head, err := readSource(cmd.InOrStdin())
		if err != nil {
			return err
		}
		var c compilation
		var form []byte
		if source.Size() > largeSource {
			debug.SetGCPercent(collectAt)
		}
		var last time.Time
		compiled, diags := compile.BundleWatched(source, func(kinds, of int) {
			if time.Since(last) >= tellEvery {
				last = time.Now()
				_ = json.NewEncoder(cmd.OutOrStdout()).Encode(told{kinds, of}) // the answer fails, too
			}
		})
		if c.Diagnostics = diags; len(diags) == 0 {
			form, _ = compiled.Form.Encode()
			c.Compiled, c.Size = compiled, int64(len(form))
			for _, f := range compiled.Source.Files {
				c.Used = append(c.Used, f.Path)
			}
			if head.Lint {
				b := &lint.Bundle{Form: compiled.Form, Module: source, Used: compiled.Source, Warnings: compiled.Warnings}
				if c.Findings, err = lint.Check(cmd.Context(), b); err != nil {
					return err
				}
			}
		}
		if err := json.NewEncoder(cmd.OutOrStdout()).Encode(c); err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(form)
		return err
	})
}

// ChildCommand returns a hidden command, which this program runs as a child process. Use lists its arguments.
func ChildCommand(use, short string, run func(*cobra.Command, []string) error) *cobra.Command {
	args := len(strings.Fields(use)) - 1
	return &cobra.Command{Use: use, Short: short, Hidden: true, Args: cobra.ExactArgs(args), RunE: run}
}
