package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// lostKeys are files of a data directory that has been in use, without which a start would
// make new ones, and whoever relies on the old ones would be refused.
type lostKeys struct {
	authority  []string // of ca.crt and ca.key
	signingKey string   // of service accounts' tokens
}

// findLostKeys looks for the files that the first start made. The signing key may be elsewhere.
func findLostKeys(dir *dataDir, signingKeyElsewhere bool) (lost lostKeys, err error) {
	missing := func(file string) bool {
		_, statErr := os.Lstat(file)
		if statErr != nil && !errors.Is(statErr, fs.ErrNotExist) {
			err = errors.Join(err, statErr)
		}
		return statErr != nil
	}
	for _, name := range []string{"ca.crt", "ca.key"} {
		if file := dir.path("pki", name); missing(file) {
			lost.authority = append(lost.authority, file)
		}
	}
	if file := dir.path("pki", "sa.key"); !signingKeyElsewhere && missing(file) {
		lost.signingKey = file
	}
	return lost, err
}

// refused says what the loss means, and what to do; nil if nothing is lost.
func (l *lostKeys) refused() error {
	var errs []error
	if len(l.authority) > 0 {
		errs = append(errs, fmt.Errorf("%s is missing, but this data directory has been in use: with a new certificate authority every kubeconfig and client certificate made so far would be refused; restore the folder pki from a backup, or start once with --replace-lost-keys and hand out new kubeconfigs",
			l.authority[0]))
	}
	if l.signingKey != "" {
		errs = append(errs, fmt.Errorf("%s is missing, but this data directory has been in use: with a new key every token of a service account issued so far would be refused; restore the file from a backup, name the key in use with --service-account-signing-key-file, or start once with --replace-lost-keys",
			l.signingKey))
	}
	return errors.Join(errs...)
}

// replace makes room for new ones, and logs what that means.
func (l *lostKeys) replace(dir *dataDir, logger *slog.Logger) error {
	if len(l.authority) > 0 {
		for _, name := range []string{"ca.crt", "ca.key"} {
			if err := os.Rename(dir.path("pki", name), dir.path("pki", name+".lost")); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		logger.Warn("a new certificate authority is made in place of the lost one: kubeconfigs and client certificates made so far are refused", "folder", dir.path("pki"))
	}
	if l.signingKey != "" {
		logger.Warn("a new key for the tokens of service accounts is made in place of the lost one: tokens issued so far are refused", "file", filepath.Base(l.signingKey))
	}
	return nil
}

// checkKeys refuses a start that would make keys in place of lost ones, unless that is wanted.
func (o *serveOptions) checkKeys(dir *dataDir, logger *slog.Logger) error {
	inUse, err := dir.inUse()
	if err != nil || !inUse {
		return err
	}
	lost, err := findLostKeys(dir, o.authentication.serviceAccounts.signingKeyFile != "")
	switch {
	case err != nil:
		return err
	case o.replaceLostKeys:
		return lost.replace(dir, logger)
	}
	return lost.refused()
}
