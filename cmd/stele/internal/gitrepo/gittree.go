// This file reads bundles from commits of a git repository, without a checkout. It runs the git program.

package gitrepo

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strconv"
	"strings"

	"stele.dev/stele/policy/bundles"
)

// Repository is a git repository on this machine. Its methods are safe for concurrent use.
type Repository struct {
	// Dir is a folder of the repository, or of a checkout of it.
	Dir string
	// Env is the environment of git, for a bare repository that this program has made. If it is nil, Dir may be written by
	// somebody else: git starts no program that its configuration names, and fetches nothing.
	Env []string
}

// Commit returns the full hash of the commit that a revision of git names, such as main, v1.2 or HEAD~3.
func (r *Repository) Commit(ctx context.Context, revision string) (string, error) {
	out, err := r.run(ctx, nil, maxCommit, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) == 0 {
		return "", fmt.Errorf("git knows no commit %q in %s", revision, r.Dir)
	}
	return strings.TrimSpace(string(out)), err
}

// Bundle reads the module that contains a folder of a commit; the folder is the bundle's package. dir is relative to
// the root of the repository. A link is read if it leads to a file of the module. Submodules are not read.
func (r *Repository) Bundle(ctx context.Context, commit, dir string) (*bundles.Source, error) {
	dir = path.Clean(dir)
	if path.IsAbs(dir) || dir == ".." || strings.HasPrefix(dir, "../") {
		return nil, fmt.Errorf("%s is not a folder in the repository: want a path relative to its root", dir)
	}
	all, err := r.list(ctx, commit)
	if err != nil {
		return nil, err
	}
	root, err := all.module(commit, dir)
	if err != nil {
		return nil, err
	}
	files, err := all.sources(root)
	if err != nil {
		return nil, err
	}
	module, err := r.read(ctx, files)
	if err != nil {
		return nil, err
	}
	pkg := dir
	if root != "." {
		pkg = path.Clean("." + strings.TrimPrefix(dir, root))
	}
	return bundles.ReadFS(module, pkg)
}

// entry is a file of a commit.
type entry struct {
	path, mode, hash string
	size             int64
	as               string // the path in the module
}

// The modes of entries that are read.
const (
	link   = "120000"
	module = "160000" // a commit of a submodule
)

// tree has the entries of a commit by path.
type tree map[string]*entry

// list lists all files of a commit.
func (r *Repository) list(ctx context.Context, commit string) (tree, error) {
	out, err := r.run(ctx, nil, maxList, "ls-tree", "-r", "-z", "-l", "--full-tree", commit)
	if err != nil {
		return nil, err
	}
	all := tree{}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		head, name, ok := strings.Cut(line, "\t")
		fields := strings.Fields(head) // mode, type, hash, size
		if !ok || len(fields) != 4 {
			continue // an empty commit
		}
		size, _ := strconv.ParseInt(fields[3], 10, 64)
		all[name] = &entry{path: name, mode: fields[0], hash: fields[2], size: size}
	}
	return all, nil
}

// module returns the folder of the module that contains a folder.
func (t tree) module(commit, dir string) (string, error) {
	exists, modules := dir == ".", map[string]bool{}
	for name := range t {
		exists = exists || strings.HasPrefix(name, dir+"/")
		if at := strings.TrimSuffix(name, "cue.mod/module.cue"); at != name {
			modules[path.Clean(at)] = true
		}
	}
	if !exists {
		return "", fmt.Errorf("commit %.12s has no folder %s", commit, dir)
	}
	for root := dir; ; root = path.Dir(root) {
		if modules[root] {
			return root, nil
		}
		if root == "." {
			return "", fmt.Errorf("in commit %.12s, %s is in no CUE module: there is no file cue.mod/module.cue in it or above", commit, dir)
		}
	}
}

// sources returns the files of a module that a bundle may consist of. It does not follow links.
func (t tree) sources(root string) ([]*entry, error) {
	var files []*entry
	var size int64
	for name, e := range t {
		as := name
		if root != "." {
			if as = strings.TrimPrefix(name, root+"/"); as == name {
				continue
			}
		}
		if e.mode == module || !bundles.IsSource(as) {
			continue
		}
		if strings.Contains(name, `\`) {
			return nil, fmt.Errorf(`%q has a \ in its path, which is a file of another folder for some programs; rename it`, name)
		}
		if size += e.size; size > bundles.MaxBytes {
			return nil, fmt.Errorf("the module has more than %d MiB of files", bundles.MaxBytes>>20)
		}
		of := *e
		of.as = as
		files = append(files, &of)
	}
	return files, nil
}

// read reads files into memory, and the files that links lead to.
func (r *Repository) read(ctx context.Context, files []*entry) (*zip.Reader, error) {
	contents, err := r.blobs(ctx, files)
	if err != nil {
		return nil, err
	}
	byPath := map[string]int{}
	for i, e := range files {
		byPath[e.as] = i
	}
	var archive bytes.Buffer // in memory, and a file system
	w := zip.NewWriter(&archive)
	for i, e := range files {
		at := i
		for hops := 0; files[at].mode == link; hops++ {
			target := path.Join(path.Dir(files[at].as), string(contents[at]))
			to, ok := byPath[target]
			if !ok || hops == 10 {
				return nil, fmt.Errorf("%s is a link to %q, which is no file of the module in the commit", e.path, contents[at])
			}
			at = to
		}
		f, err := w.CreateHeader(&zip.FileHeader{Name: e.as, Method: zip.Store})
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(contents[at]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
}

// blobs returns the contents of files.
func (r *Repository) blobs(ctx context.Context, files []*entry) ([][]byte, error) {
	var hashes strings.Builder
	var size int64
	for _, e := range files {
		hashes.WriteString(e.hash + "\n")
		size += e.size + 128 // with the line before each
	}
	out, err := r.run(ctx, strings.NewReader(hashes.String()), int(size), "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	contents := make([][]byte, 0, len(files))
	in := bufio.NewReader(bytes.NewReader(out))
	for _, e := range files {
		head, err := in.ReadString('\n') // hash, type, size
		fields := strings.Fields(head)
		if err != nil || len(fields) != 3 || fields[1] != "blob" {
			return nil, fmt.Errorf("git cannot read %s: %s", e.path, strings.TrimSpace(head))
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || size < 0 || size > bundles.MaxBytes {
			return nil, fmt.Errorf("git cannot read %s: %s", e.path, strings.TrimSpace(head))
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(in, data); err != nil {
			return nil, fmt.Errorf("git cannot read %s: %w", e.path, err)
		}
		if _, err := in.Discard(1); err != nil { // the end of the line
			return nil, fmt.Errorf("git cannot read %s: %w", e.path, err)
		}
		contents = append(contents, data)
	}
	return contents, nil
}

// CommitObject returns the text of a commit, which its signature is about.
func (r *Repository) CommitObject(ctx context.Context, commit string) ([]byte, error) {
	return r.run(ctx, nil, maxCommit, "cat-file", "commit", commit)
}

// The limits of what git writes. A small repository can have a tree of any number of files, and a commit of any length.
var (
	maxList   = 64 << 20
	maxCommit = 1 << 20
)

// run runs git. Its error has what git wrote on standard error. git is ended if it writes more than limit bytes.
func (r *Repository) run(ctx context.Context, in io.Reader, limit int, args ...string) ([]byte, error) {
	cmd, err := r.command(ctx, args...)
	if err != nil {
		return nil, err
	}
	out, errs := &output{limit: limit}, &output{limit: 64 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	err = cmd.Run()
	exit := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case out.full:
		return nil, fmt.Errorf("git %s wrote more than %d MiB: the repository has too many files, or too large objects", args[0], limit>>20)
	case errors.As(err, &exit):
		if exit.Stderr = errs.text; len(exit.Stderr) > 0 {
			return nil, fmt.Errorf("git %s: %s: %w", args[0], strings.TrimSpace(string(exit.Stderr)), err)
		}
	}
	return out.text, err
}

// command returns the command that runs git.
func (r *Repository) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	if r.Env == nil {
		return command(ctx, r.Dir, args...)
	}
	cmd := exec.CommandContext(ctx, "git", append(append([]string{"-C", r.Dir, "--git-dir=."}, harmless...), args...)...)
	cmd.Env = r.Env
	return cmd, nil
}

// output keeps what a program writes, up to a limit.
type output struct {
	text  []byte
	limit int
	full  bool
}

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	if len(o.text)+len(p) > o.limit {
		o.full = true
		return 0, errors.New("it is too much")
	}
	o.text = append(o.text, p...)
	return len(p), nil
}
