// Command release makes what a release of stele consists of, from the module's root or any folder in it.
//
//	release build [flags]        programs, archives, packages, image, SBOMs, provenance, checksums and their signature
//	release push DIST REFERENCE  the image of a release to a registry, with the credentials of docker
//	release check [flags]        build twice, compare, verify, install and start what was built
//	release manifests [-check]   the plain manifests of the chart
//
// It is a module of its own, so that what it needs, such as the makers of packages and the templates of Helm, is nothing that
// the program needs: go.mod of the program does not name it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	root, err := output(ctx, ".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if len(args) == 0 {
		args = []string{""}
	}
	flags := flag.NewFlagSet("release "+args[0], flag.ExitOnError)
	switch args[0] {
	case "build":
		b := &build{root: root}
		b.addFlags(flags)
		_ = flags.Parse(args[1:])
		if b.program != "" {
			return errors.New("-program is for release check: the provenance of a release says how its program was built")
		}
		return b.run(ctx)
	case "push":
		if len(args) != 3 {
			return errors.New("usage: release push DIST REFERENCE")
		}
		return push(ctx, root, args[1], args[2])
	case "check":
		b := &build{root: root, dirty: true}
		b.addFlags(flags)
		_ = flags.Parse(args[1:])
		return check(ctx, b)
	case "manifests":
		only := flags.Bool("check", false, "change nothing, and fail if a file differs")
		_ = flags.Parse(args[1:])
		return writeManifests(root, *only)
	}
	return errors.New("usage: release build | push DIST REFERENCE | check | manifests [-check]")
}

// environment returns the variables of the process but those that set flags of stele.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "STELE_") })
}

// output runs a program in a folder, with further variables, and returns what it prints without the last line's end.
func output(ctx context.Context, folder string, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = folder, append(environment(), env...), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
