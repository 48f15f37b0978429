package flash

import "context"

// BufferRef names a VkBuffer that the caller owns. It needs the usages storage buffer and transfer source and destination
// (the transfers only for Upload and Download).
type BufferRef struct {
	Handle uintptr // VkBuffer
	Size   uint64  // bytes
}

// Tensor is a view of a buffer: element [b, h, n, d] stands at byte offset + size·(b·s0 + h·s1 + n·s2 + d·s3).
type Tensor struct {
	dev *Device
}

// NewTensor allocates a tensor with layout batch, heads, length, dimension.
func (d *Device) NewTensor(dtype DType, batch, heads, length, dim int) (*Tensor, error) {
	return nil, errUnfinished
}

// NewTensorBNHD allocates a tensor of the same shape whose memory is laid out batch, length, heads, dimension.
func (d *Device) NewTensorBNHD(dtype DType, batch, heads, length, dim int) (*Tensor, error) {
	return nil, errUnfinished
}

// NewLSE allocates the fp32 tensor of row statistics: shape [batch, heads, length, 1].
func (d *Device) NewLSE(batch, heads, length int) (*Tensor, error) { return nil, errUnfinished }

// TensorOn lays a tensor over a buffer of the caller's.
func (d *Device) TensorOn(buffer BufferRef, offset uint64, dtype DType, shape, strides [4]int) (*Tensor, error) {
	return nil, errUnfinished
}

// View lays another tensor over the same buffer.
func (t *Tensor) View(offset uint64, dtype DType, shape, strides [4]int) (*Tensor, error) {
	return nil, errUnfinished
}

func (t *Tensor) Shape() [4]int     { return [4]int{} }
func (t *Tensor) Strides() [4]int   { return [4]int{} }
func (t *Tensor) DType() DType      { return 0 }
func (t *Tensor) Elements() int     { return 0 }
func (t *Tensor) Offset() uint64    { return 0 }
func (t *Tensor) Buffer() BufferRef { return BufferRef{} }

// Upload converts values (in order b, h, n, d) to the tensor's type and copies them to the device.
func (t *Tensor) Upload(ctx context.Context, values []float32) error { return errUnfinished }

// Download copies the tensor into values, in order b, h, n, d, as fp32.
func (t *Tensor) Download(ctx context.Context, values []float32) error { return errUnfinished }

// Bytes is the number of bytes from the tensor's first element to its last: what UploadBytes and DownloadBytes move.
func (t *Tensor) Bytes() uint64 { return 0 }

// UploadBytes copies raw bytes, as they shall lie in memory.
func (t *Tensor) UploadBytes(ctx context.Context, data []byte) error { return errUnfinished }

// DownloadBytes copies the raw bytes out.
func (t *Tensor) DownloadBytes(ctx context.Context, data []byte) error { return errUnfinished }

// Close frees the tensor; a tensor on the caller's buffer frees nothing.
func (t *Tensor) Close() error { return nil }
