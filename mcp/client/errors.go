package client

import "errors"

// Why a stream was ended from here, or could not be had.
var (
	errSilent      = errors.New("it does not answer")
	errConnect     = errors.New("no connection in time")
	errClosed      = errors.New("it closed the stream")
	errNoAuthority = errors.New("authorities of the server: there is no certificate in what is given")
	errNoPair      = errors.New("certificate of the client: it and its key can't be read, or don't belong together")
	errNoAltName   = errors.New("the server's certificate has none of the subject alternative names")
	errToken       = errors.New("the file of the token is empty")
)

// Why a resource can't be used.
var (
	errTwoIDs = errors.New("the names in it and on it differ")
	errBody   = errors.New("its body can't be read")
)
