# Homebrew: for a tap of your own. `make recipes` fills it in.
class DflashLocal < Formula
  desc "Quantized GGUF models several times faster, with the same output"
  homepage "@URL@"
  url "@FILES@/@SDIST@"
  sha256 "@SDIST_SHA256@"
  license "MIT"

  depends_on "python@3.13"

  on_macos do
    depends_on arch: :arm64
    resource "own" do
      url "@FILES@/@OWN_METAL_QUOTED@", using: :nounzip
      sha256 "@OWN_METAL_SHA256@"
    end
    resource "native" do
      url "@FILES@/@NATIVE_METAL_QUOTED@", using: :nounzip
      sha256 "@NATIVE_METAL_SHA256@"
    end
  end

  on_linux do
    on_arm do
      resource "own" do
        url "@FILES@/@OWN_ARM_QUOTED@", using: :nounzip
        sha256 "@OWN_ARM_SHA256@"
      end
      resource "native" do
        url "@FILES@/@NATIVE_ARM_QUOTED@", using: :nounzip
        sha256 "@NATIVE_ARM_SHA256@"
      end
    end
    on_intel do
      resource "own" do
        url "@FILES@/@OWN_CPU_QUOTED@", using: :nounzip
        sha256 "@OWN_CPU_SHA256@"
      end
      resource "native" do
        url "@FILES@/@NATIVE_CPU_QUOTED@", using: :nounzip
        sha256 "@NATIVE_CPU_SHA256@"
      end
    end
  end

  # pip fetches what the wheels depend on, so this is no formula for homebrew-core.
  def install
    system "python3.13", "-m", "venv", libexec
    # A wheel's name says what is in it, and a download may have lost the plus sign of its version.
    wheels = %w[own native].map do |name|
      path = buildpath/File.basename(resource(name).url).gsub("%2B", "+")
      resource(name).stage { cp Dir["*"].first, path }
      path
    end
    system libexec/"bin/python", "-m", "pip", "--no-input", "install", *wheels
    bin.install_symlink libexec/"bin/dflash-local"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/dflash-local --version")
    assert_match "the same answer both ways", shell_output("#{bin}/dflash-local demo --once")
  end
end
