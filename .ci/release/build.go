package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// platform is an operating system and an architecture, by Go's names.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// host is the platform of this program.
var host = platform{runtime.GOOS, runtime.GOARCH}

// build is a release that is made. Its files depend on the commit, the version and the versions of Go and modules only, not on
// the machine, the folder or the time.
type build struct {
	root      string // of the source
	out       string // folder of the results
	version   string
	names     string // of platforms
	program   string // a program that was built before, for the host's platform only
	key       string // private SSH key that signs the checksums
	builder   string // URI of who builds
	source    string // URI of the repository
	dirty     bool   // builds a tree with changes
	platforms []platform
	commit    string
	time      time.Time // of the commit: the time of all files
	// imageDigest is that of the image, once it is made.
	imageDigest string
	// cache is Go's cache of what it has compiled; "" for the usual one.
	cache string
}

func (b *build) addFlags(f *flag.FlagSet) {
	f.StringVar(&b.out, "out", "dist", "folder of the results; it must not exist, or be empty")
	f.StringVar(&b.version, "version", "", "version of the release (default: the tag vX.Y.Z of the commit, or else the version in the source and the commit's time)")
	f.StringVar(&b.names, "platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "platforms")
	f.StringVar(&b.program, "program", "", "a program that was built before, for the platform of this machine, which is then the only one")
	f.StringVar(&b.key, "key", "", "private SSH key that signs SHA256SUMS (default: it is not signed)")
	f.StringVar(&b.builder, "builder", "urn:stele:builder:unnamed", "URI of who builds, for the provenance")
	f.StringVar(&b.source, "source", "", "URI of the repository, for the provenance: git+https://…")
	f.BoolVar(&b.dirty, "dirty", b.dirty, "also build a working tree with changes that are not committed")
}

// run makes the release.
func (b *build) run(ctx context.Context) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	programs, err := b.programs(ctx, work)
	if err != nil {
		return err
	}
	staged, err := stage(ctx, programs[host], filepath.Join(work, "root"))
	if err != nil {
		return err
	}
	var subjects []string
	images := map[platform]string{}
	for _, p := range b.platforms {
		made, err := b.platform(p, programs[p], staged)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		subjects = append(subjects, made...)
		if p.os == "linux" {
			images[p] = programs[p]
		}
	}
	if len(images) > 0 {
		name, err := b.image(images, staged)
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		subjects = append(subjects, name)
	}
	chart, err := b.chart()
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	subjects = append(subjects, chart)
	if err := b.provenance(subjects); err != nil {
		return err
	}
	return b.checksums()
}

// prepare finds out what is built, and makes the folder of the results.
func (b *build) prepare(ctx context.Context) (err error) {
	if !filepath.IsAbs(b.out) {
		b.out = filepath.Join(b.root, b.out)
	}
	if b.key != "" { // a build takes minutes
		if _, err := readKey(b.key); err != nil {
			return err
		}
	}
	if entries, err := os.ReadDir(b.out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty; remove it, or choose another folder by -out", b.out)
	}
	for name := range strings.SplitSeq(b.names, ",") {
		system, arch, ok := strings.Cut(name, "/")
		if !ok {
			return fmt.Errorf("the platform %q: want one such as linux/amd64", name)
		}
		b.platforms = append(b.platforms, platform{system, arch})
	}
	if b.program != "" {
		if b.platforms = []platform{host}; !filepath.IsAbs(b.program) {
			b.program = filepath.Join(b.root, b.program)
		}
	}
	changes, err := b.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" && !b.dirty {
		return errors.New("the working tree has changes that are not committed; commit them, or try with -dirty")
	}
	if b.commit, err = b.git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	date, err := b.git(ctx, "log", "-1", "--format=%cI")
	if err != nil {
		return err
	}
	if b.time, err = time.Parse(time.RFC3339, date); err != nil {
		return err
	}
	b.time = b.time.UTC()
	if b.version == "" {
		if b.version, err = b.findVersion(ctx); err != nil {
			return err
		}
		if changes != "" {
			b.version += ".dirty"
		}
	}
	if !versions.MatchString(b.version) {
		return fmt.Errorf("the version %q: want one such as 1.2.3 or 1.2.3-rc.1", b.version)
	}
	return os.MkdirAll(b.out, 0o755)
}

// versions matches semantic versions without build metadata, which names of images cannot have.
var versions = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// sourceVersion matches the version in the source.
var sourceVersion = regexp.MustCompile(`(?m)^var Version = "(.+)"$`)

// findVersion returns the version of the commit. One without a tag has the version in the source and its time, so that the
// managers of packages know which of two is newer.
func (b *build) findVersion(ctx context.Context) (string, error) {
	tags, err := b.git(ctx, "tag", "--points-at", "HEAD", "--sort=-version:refname")
	if err != nil {
		return "", err
	}
	for tag := range strings.Lines(tags) {
		if v := strings.TrimPrefix(strings.TrimSpace(tag), "v"); v != strings.TrimSpace(tag) && versions.MatchString(v) {
			return v, nil
		}
	}
	text, err := os.ReadFile(filepath.Join(b.root, "cmd", "stele", "internal", "build", "build.go"))
	if err != nil {
		return "", err
	}
	found := sourceVersion.FindSubmatch(text)
	if found == nil {
		return "", errors.New("cmd/stele/internal/build/build.go has no line that begins with var Version = ")
	}
	return string(found[1]) + "." + b.time.Format("20060102150405"), nil
}

func (b *build) git(ctx context.Context, args ...string) (string, error) {
	return output(ctx, b.root, nil, "git", args...)
}

// tags are the build tags of a release: it has the drivers of all buckets.
const tags = "allbuckets"

// buildFlags returns the flags of go build. Debug information would be left out by -w, so compilers make none.
func (b *build) buildFlags() []string {
	return []string{"-trimpath", "-buildvcs=true", "-tags=" + tags, "-gcflags=all=-dwarf=false",
		"-ldflags=-s -w -buildid= -X stele.dev/stele/cmd/stele/internal/build.Version=" + b.version}
}

// programs builds the program for all platforms, and for that of this machine, which makes completions and manual pages.
func (b *build) programs(ctx context.Context, folder string) (map[platform]string, error) {
	if b.program != "" {
		return map[platform]string{host: b.program}, nil
	}
	built := map[platform]string{}
	for _, p := range append([]platform{host}, b.platforms...) {
		if built[p] != "" {
			continue
		}
		program := filepath.Join(folder, p.os+"-"+p.arch)
		// Whatever the environment says of Go, a release is built in one way.
		env := []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch, "GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off", "GOFIPS140=off"}
		if b.cache != "" {
			env = append(env, "GOCACHE="+b.cache)
		}
		fmt.Printf("build %s\n", p)
		args := append([]string{"build", "-o", program}, b.buildFlags()...)
		if _, err := output(ctx, b.root, env, "go", append(args, "./cmd/stele")...); err != nil {
			return nil, err
		}
		if err := b.checkCommit(program); err != nil {
			return nil, err
		}
		built[p] = program
	}
	return built, nil
}

// checkCommit returns an error unless a program names the commit from which it was built.
func (b *build) checkCommit(program string) error {
	_, info, err := modulesOf(program)
	if err != nil {
		return err
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && s.Value == b.commit {
			return nil
		}
	}
	return fmt.Errorf("the program does not name the commit %s; build a release in a clone of the repository, because Go writes no commit in a worktree of git", b.commit)
}

// platform makes the archive, the packages and the SBOM of a platform, and returns their names.
func (b *build) platform(p platform, program string, staged *tree) (names []string, err error) {
	notices, err := noticesOf(program, b.root)
	if err != nil {
		return nil, err
	}
	t := staged.with("/usr/bin/stele", program)
	archive, err := b.archive(p, t, notices)
	if err != nil {
		return nil, err
	}
	names = append(names, archive)
	if p.os == "linux" {
		packages, err := b.packages(p, t, notices)
		if err != nil {
			return nil, err
		}
		names = append(names, packages...)
	}
	sbom, err := b.sbom(p, program)
	return append(names, sbom), err
}

// name returns the name of a file of the release, for a platform.
func (b *build) name(p platform, end string) string {
	return fmt.Sprintf("stele_%s_%s_%s%s", b.version, p.os, p.arch, end)
}

// create creates a file of the release.
func (b *build) create(name string) (*os.File, error) {
	fmt.Printf("write %s\n", name)
	return os.OpenFile(filepath.Join(b.out, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}
