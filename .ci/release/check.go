package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"debug/elf"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/blakesmith/ar"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/hiddeco/sshsig"
	"github.com/sassoftware/go-rpmutils"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"
)

// check makes a release twice, compares the two, verifies its sums and signature, looks into the packages and the image, installs
// the archive and starts the program. The second build is of another checkout, with a cache of its own; with -program only what
// is made of the program is made twice.
func check(ctx context.Context, b *build) (err error) {
	work, err := os.MkdirTemp("", "release-check")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	public, err := makeKey(filepath.Join(work, "key"))
	if err != nil {
		return err
	}
	b.key, b.out = filepath.Join(work, "key"), filepath.Join(work, "first")
	second := *b
	second.out = filepath.Join(work, "second")
	if b.program == "" {
		changes, err := b.git(ctx, "status", "--porcelain")
		if err != nil {
			return err
		}
		if changes != "" {
			return errors.New("the working tree has changes that are not committed; commit them, because the second build is of a checkout, or give -program")
		}
		commit, err := b.git(ctx, "rev-parse", "HEAD")
		if err != nil {
			return err
		}
		second.root, second.cache = filepath.Join(work, "source"), filepath.Join(work, "cache")
		// A clone, because Go does not write the commit into programs that are built in a worktree.
		if _, err := b.git(ctx, "clone", "--quiet", "--shared", "--no-checkout", b.root, second.root); err != nil {
			return err
		}
		if _, err := second.git(ctx, "checkout", "--quiet", "--detach", commit); err != nil {
			return err
		}
	}
	both, building := errgroup.WithContext(ctx)
	if b.program == "" {
		both.SetLimit(1) // a build takes all processors
	}
	both.Go(func() error { return b.run(building) })
	both.Go(func() error { return second.run(building) })
	if err := both.Wait(); err != nil {
		return err
	}
	if err := sameRelease(b.out, second.out); err != nil {
		return err
	}
	return b.inspect(ctx, public, work)
}

// inspect checks a release that was made.
func (b *build) inspect(ctx context.Context, public ssh.PublicKey, work string) error {
	if err := verify(b.out, public); err != nil {
		return err
	}
	if !slices.Contains(b.platforms, host) {
		return fmt.Errorf("%s is not among the platforms, and what was built cannot be started", host)
	}
	unpacked := filepath.Join(work, "unpacked")
	if err := unpackArchive(filepath.Join(b.out, b.name(host, ".tar.gz")), unpacked); err != nil {
		return err
	}
	folder := filepath.Join(unpacked, strings.TrimSuffix(b.name(host, ".tar.gz"), ".tar.gz"))
	digest, err := digestOf(filepath.Join(folder, "bin", "stele"))
	if err != nil {
		return err
	}
	for _, p := range b.platforms {
		if p.os != "linux" {
			continue
		}
		if err := errors.Join(b.checkDeb(p), b.checkRPM(p)); err != nil {
			return err
		}
	}
	if b.program == "" && host.os == "linux" {
		if err := checkStatic(filepath.Join(folder, "bin", "stele")); err != nil {
			return err
		}
	}
	if err := b.checkChart(); err != nil {
		return err
	}
	if host.os == "linux" {
		if err := b.checkImage(filepath.Join(work, "image"), digest); err != nil {
			return fmt.Errorf("%s: %w", b.imageName(), err)
		}
	}
	return b.tryProgram(ctx, folder, work)
}

// makeKey makes a key that signs, and returns its public half.
func makeKey(file string) (ssh.PublicKey, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, err
	}
	return ssh.NewPublicKey(public)
}

// sameRelease compares the checksums of two releases, and names what differs.
func sameRelease(first, second string) error {
	a, err := os.ReadFile(filepath.Join(first, sumsName))
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(second, sumsName))
	if err != nil {
		return err
	}
	if bytes.Equal(a, b) {
		return nil
	}
	known := strings.Split(string(b), "\n")
	for line := range strings.Lines(string(a)) {
		if line = strings.TrimSpace(line); !slices.Contains(known, line) {
			err = errors.Join(err, fmt.Errorf("two builds differ in %s", line[strings.LastIndex(line, " ")+1:]))
		}
	}
	return cmp.Or(err, errors.New("two builds have different files"))
}

// verify checks that the sums are those of all files, and signed by a key.
func verify(folder string, public ssh.PublicKey) error {
	sums, err := os.ReadFile(filepath.Join(folder, sumsName))
	if err != nil {
		return err
	}
	armored, err := os.ReadFile(filepath.Join(folder, signatureName))
	if err != nil {
		return err
	}
	signature, err := sshsig.Unarmor(armored)
	if err != nil {
		return err
	}
	if err := sshsig.Verify(bytes.NewReader(sums), signature, public, signature.HashAlgorithm, namespace); err != nil {
		return fmt.Errorf("%s: %w", signatureName, err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var want strings.Builder
	for _, e := range entries {
		if e.Name() == sumsName || e.Name() == signatureName {
			continue
		}
		digest, err := digestOf(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&want, "%s  %s\n", digest, e.Name())
	}
	if want.String() != string(sums) {
		return fmt.Errorf("%s has\n%sand the files are\n%s", sumsName, sums, want.String())
	}
	return nil
}

func unpackArchive(archive, folder string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	return untar(zip, folder)
}

// packaged are files that each package has.
var packaged = []string{"/usr/bin/stele", "/usr/bin/kubectl-stele", "/usr/lib/systemd/system/stele.service", "/usr/lib/sysusers.d/stele.conf", "/etc/stele/stele.env", "/usr/share/man/man1/stele-serve.1"}

// checkNames returns an error if a package lacks a file.
func checkNames(name string, found []string) error {
	for _, path := range packaged {
		if !slices.Contains(found, path) {
			return fmt.Errorf("%s has no %s", name, path)
		}
	}
	return nil
}

// checkDeb looks into a Debian package.
func (b *build) checkDeb(p platform) error {
	name := b.name(p, ".deb")
	file, err := os.Open(filepath.Join(b.out, name))
	if err != nil {
		return err
	}
	defer file.Close()
	for parts := ar.NewReader(file); ; {
		header, err := parts.Next()
		if err != nil {
			return fmt.Errorf("%s: it has no data: %w", name, err)
		}
		if strings.TrimRight(header.Name, "/ ") != "data.tar.gz" {
			continue
		}
		zip, err := gzip.NewReader(parts)
		if err != nil {
			return err
		}
		var found []string
		for data := tar.NewReader(zip); ; {
			header, err := data.Next()
			if errors.Is(err, io.EOF) {
				return checkNames(name, found)
			}
			if err != nil {
				return err
			}
			if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(b.time) {
				return fmt.Errorf("%s: %s is not of root, or has another time", name, header.Name)
			}
			found = append(found, strings.TrimPrefix(header.Name, "."))
		}
	}
}

// checkRPM looks into an RPM package.
func (b *build) checkRPM(p platform) error {
	name := b.name(p, ".rpm")
	file, err := os.Open(filepath.Join(b.out, name))
	if err != nil {
		return err
	}
	defer file.Close()
	read, err := rpmutils.ReadRpm(file)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	files, err := read.Header.GetFiles()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var found []string
	for _, f := range files {
		found = append(found, f.Name())
	}
	return checkNames(name, found)
}

// checkStatic returns an error if a program needs a loader or libraries, which the image does not have.
func checkStatic(program string) error {
	file, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return fmt.Errorf("%s needs libraries of the machine", program)
		}
	}
	return nil
}

// checkImage looks into the image: who runs what, and whether it is the program.
func (b *build) checkImage(folder, digest string) error {
	index, err := openImage(filepath.Join(b.out, b.imageName()), folder)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/stele"}) {
			return fmt.Errorf("%s runs %q as %q", m.Platform, config.Config.Entrypoint, config.Config.User)
		}
		if m.Platform.OS != host.os || m.Platform.Architecture != host.arch {
			continue
		}
		return checkRootFS(image, folder, digest)
	}
	return fmt.Errorf("it has no image for %s", host)
}

// checkRootFS checks that an image has the program and the authorities of TLS.
func checkRootFS(image v1.Image, folder, digest string) error {
	content := mutate.Extract(image)
	defer content.Close()
	files := filepath.Join(folder, "rootfs")
	if err := untar(content, files); err != nil {
		return err
	}
	if found, err := digestOf(filepath.Join(files, "usr", "bin", "stele")); err != nil || found != digest {
		return errors.Join(err, errors.New("its program is not that of the archive"))
	}
	text, err := os.ReadFile(filepath.Join(files, "etc", "ssl", "certs", "ca-certificates.crt"))
	if n := bytes.Count(text, []byte("BEGIN CERTIFICATE")); err != nil || n < 50 {
		return errors.Join(err, fmt.Errorf("it has %d authorities of TLS", n))
	}
	return nil
}

// tryProgram installs an unpacked archive below a folder, and runs what was installed.
func (b *build) tryProgram(ctx context.Context, folder, work string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	root := filepath.Join(work, "installed")
	if _, err := output(ctx, work, nil, filepath.Join(folder, "bin", "stele"), "install", "--systemd", "--root", root); err != nil {
		return err
	}
	program := filepath.Join(root, "usr", "local", "bin", "stele")
	text, err := output(ctx, work, nil, program, "version")
	if err != nil {
		return err
	}
	if want := "stele " + b.version + "\n"; b.program == "" && !strings.HasPrefix(text, want) {
		return fmt.Errorf("stele version prints %q, and should begin with %q", text, want)
	}
	server := exec.CommandContext(ctx, program, "serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(work, "data"))
	server.Dir, server.Env, server.Stderr = work, environment(), os.Stderr
	said, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	fmt.Println("start stele", b.version)
	if err := server.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "Try ") {
	}
	status, asked := output(ctx, work, nil, program, "status", "--kubeconfig", filepath.Join(work, "data", "admin.kubeconfig"))
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(asked, err)
	}
	_, _ = io.Copy(io.Discard, said)
	if err := server.Wait(); err != nil {
		return errors.Join(asked, fmt.Errorf("stele serve: %w", err))
	}
	fmt.Println(status)
	return asked
}
