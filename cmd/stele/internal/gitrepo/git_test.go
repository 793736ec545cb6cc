package gitrepo_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stele.dev/stele/cmd/stele/internal/gitrepo"
	"stele.dev/stele/policy/bundles"
)

// hostile writes a folder whose git configuration names a program that makes the file ran. The module is in folder/policy.
var hostile = map[string]func(t *testing.T, folder, program string, git func(dir string, args ...string)){
	"a file system monitor": func(t *testing.T, folder, program string, git func(string, ...string)) {
		git(folder, "config", "core.fsmonitor", program)
	},
	"hooks": func(t *testing.T, folder, program string, git func(string, ...string)) {
		for _, name := range []string{"post-index-change", "reference-transaction", "post-checkout"} {
			file := filepath.Join(folder, ".git", "hooks", name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("#!/bin/sh\n"+program+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	},
	"a filter of file contents": func(t *testing.T, folder, program string, git func(string, ...string)) {
		write(t, folder, map[string]string{".gitattributes": "* filter=spy\n"})
		git(folder, "config", "filter.spy.clean", program)
		git(folder, "config", "filter.spy.smudge", program)
		git(folder, "config", "filter.spy.required", "true")
	},
	"a filter that is a process": func(t *testing.T, folder, program string, git func(string, ...string)) {
		write(t, folder, map[string]string{".gitattributes": "* filter=Spy.Two\n"})
		git(folder, "config", "filter.Spy.Two.process", program)
	},
	"a difference program": func(t *testing.T, folder, program string, git func(string, ...string)) {
		write(t, folder, map[string]string{".gitattributes": "* diff=spy\n"})
		git(folder, "config", "diff.external", program)
		git(folder, "config", "diff.spy.textconv", program)
		git(folder, "config", "diff.spy.command", program)
	},
	"a remote that is a program": func(t *testing.T, folder, program string, git func(string, ...string)) {
		for name, value := range map[string]string{
			"core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
			"remote.origin.url": "ext::" + program, "protocol.ext.allow": "always", "protocol.allow": "always",
		} {
			git(folder, "config", name, value)
		}
		blobs, err := filepath.Glob(filepath.Join(folder, ".git", "objects", "??", "*"))
		if err != nil || len(blobs) == 0 {
			t.Fatal(blobs, err)
		}
		head, err := exec.Command("git", "-C", folder, "rev-parse", "HEAD", "HEAD^{tree}").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, blob := range blobs { // all but the commit and its tree are missing
			hash := filepath.Base(filepath.Dir(blob)) + filepath.Base(blob)
			if !strings.Contains(string(head), hash) {
				if err := os.Remove(blob); err != nil {
					t.Fatal(err)
				}
			}
		}
	},
	"a bare repository among the files": func(t *testing.T, folder, program string, git func(string, ...string)) {
		bare := filepath.Join(folder, "policy")
		write(t, bare, map[string]string{
			"HEAD": "ref: refs/heads/main\n", "objects/.keep": "", "refs/.keep": "",
			"config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = \"" + program + "\"\n",
		})
	},
}

// No command runs a program that a folder's own git configuration names, whoever wrote the folder.
func TestNoProgramOfAFolderRuns(t *testing.T) {
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_SYSTEM", os.DevNull)
	for name, prepare := range hostile {
		t.Run(name, func(t *testing.T) {
			folder, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
			program := filepath.Join(t.TempDir(), "spy")
			if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\" >>"+ran+"\ncat 2>/dev/null\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			git := func(dir string, args ...string) {
				t.Helper()
				cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "core.fsmonitor=false"}, args...)...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("git %s: %v\n%s", args, err, out)
				}
			}
			write(t, folder, map[string]string{
				"policy/cue.mod/module.cue": "module: \"example.com/p\"\nlanguage: version: \"v0.17.0\"\n",
				"policy/cluster.cue":        "package dev\n\nbundle: 1\n",
			})
			git(folder, "init", "-q", "-b", "main")
			git(folder, "add", ".")
			git(folder, "commit", "-q", "-m", "one")
			prepare(t, folder, program, git)
			write(t, folder, map[string]string{"policy/cluster.cue": "package dev\n\nbundle: 2\n"}) // so that contents are compared

			module := filepath.Join(folder, "policy")
			source := &bundles.Source{Package: ".", Files: []bundles.File{{Path: "cluster.cue", Data: []byte("package dev\n\nbundle: 2\n")}}}
			// What they return is of no interest here: an error is as good as an answer.
			_, _ = gitrepo.ReadCheckout(t.Context(), module, source)
			_ = gitrepo.Prefix(t.Context(), module)
			_, _ = gitrepo.ChangedSince(t.Context(), module, "HEAD")
			repository := &gitrepo.Repository{Dir: module}
			if commit, err := repository.Commit(t.Context(), "HEAD"); err == nil {
				_, _ = repository.Bundle(t.Context(), commit, "policy")
				_, _ = repository.CommitObject(t.Context(), commit)
			}
			if text, err := os.ReadFile(ran); err == nil {
				t.Errorf("a program of the folder ran: %s", text)
			}
		})
	}
}

// A bare repository among the files of a checkout is refused, also by versions of git that would use it.
func TestABareRepositoryAmongTheFilesIsRefused(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"clusters/HEAD": "ref: refs/heads/main\n", "clusters/objects/.keep": "", "clusters/refs/.keep": "", "clusters/dev/a.cue": "package dev\n"})
	_, err := (&gitrepo.Repository{Dir: filepath.Join(folder, "clusters", "dev")}).Commit(t.Context(), "HEAD")
	if err == nil || !strings.Contains(err.Error(), "looks like a bare git repository") {
		t.Errorf("the error is %v", err)
	}
}
