package signers

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Key is a private SSH key that signs. It is immutable.
type Key struct {
	file   string
	signer ssh.Signer
}

// ReadKey reads a private SSH key without a passphrase.
func ReadKey(file string) (*Key, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(text)
	if locked := (*ssh.PassphraseMissingError)(nil); errors.As(err, &locked) {
		return nil, fmt.Errorf("%s has a passphrase; want a key without one", file)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no private SSH key: %w", file, err)
	}
	return &Key{file, signer}, nil
}

// Sign returns an armored signature over a message for a namespace, as `ssh-keygen -Y sign` makes it.
func (k *Key) Sign(message []byte, namespace string) ([]byte, error) {
	signature, err := sshsig.Sign(bytes.NewReader(message), k.signer, sshsig.HashSHA512, namespace)
	if err != nil {
		return nil, fmt.Errorf("sign with %s: %w", k.file, err)
	}
	return sshsig.Armor(signature), nil
}

// Verify returns an error unless an armored signature over a message for a namespace is by this key.
func (k *Key) Verify(message, armored []byte, namespace string) error {
	signature, err := sshsig.Unarmor(armored)
	if err != nil {
		return err
	}
	return sshsig.Verify(bytes.NewReader(message), signature, k.signer.PublicKey(), signature.HashAlgorithm, namespace)
}
